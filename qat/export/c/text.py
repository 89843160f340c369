"""Text of users as strings of C, where none of its characters has a meaning."""

import re

UNSAFE = re.compile(r"[^A-Za-z0-9 _.,;:()/+-]")  # quotes, backslashes, stars, question marks, line ends, ...


def c_string(text: str) -> str:
    """A string literal of the text in UTF-8: each byte of an unsafe character as three octal digits."""
    return '"' + UNSAFE.sub(lambda found: "".join(f"\\{x:03o}" for x in found[0].encode()), text) + '"'
