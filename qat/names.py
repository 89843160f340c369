"""Names that users give: glob patterns over module names, and errors that list the nearest names."""

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

MAX_LENGTH = 400


def match_names(pattern: str, names: Iterable[str], what: str) -> list[str]:
    """Names that match a glob pattern; `*` matches any characters, dots too (`blocks.*.conv`, `*bn1`).

    Raises:
        ValueError: no name matches; the message calls the pattern by `what` and lists the nearest names.
    """
    names = list(names)
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise ValueError(f"{what} {pattern!r} matches nothing; {_nearest(pattern, names)}")
    return found


def check_class_names(names: object, count: int) -> tuple[str, ...]:
    """The names of `count` classes as a tuple.

    Raises:
        ValueError: they are not a list of `count` texts; a lone surrogate or a NUL is no text in a file.
    """
    listed = tuple(names) if isinstance(names, list | tuple) else ()
    wrong = [name for name in listed if not isinstance(name, str) or "\0" in name or not _is_unicode(name)]
    if wrong or len(listed) != count:
        got = f"{wrong[0]!r}" if wrong else f"{len(listed)} in {names!r}"
        rule = f"class_names must be a list of {count} texts, one for each class, got {got}"
        raise ValueError(f"{rule}; name each class, or leave them out")
    return listed


def _is_unicode(name: str) -> bool:
    return not any(0xD800 <= ord(character) < 0xE000 for character in name)


def unknown_name(what: str, name: object, known: Iterable[str]) -> ValueError:
    """The error for a name that is not among the `known` ones; its message lists the nearest of them."""
    return ValueError(f"unknown {what} {name!r}; {_nearest(str(name), list(known))}")


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=3, cutoff=0.5) or [k for k in known if name and name in k][:3]
    if close:
        return f"nearest: {', '.join(close)}"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"choose from: {shown}"


def one_line(message: object) -> str:
    """The text in one line: each run of white space becomes one space; cut after 400 characters."""
    text = " ".join(str(message).split())
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "..."
