"""The parser of each verb: it knows how the verb was called, and says what is wrong in one line."""

import sys
from pathlib import Path
from typing import Any, NoReturn

from lightning.pytorch.cli import LightningArgumentParser

from qat.options import explain


def command() -> list[str]:
    """The words that call the verb of this process: `qat VERB`, `python -m qat VERB` or `python SCRIPT`."""
    script, *arguments = sys.argv
    name = Path(script).name
    if name in ("qat", "qat.exe"):
        return ["qat", *arguments[:1]]
    if name == "__main__.py":
        return ["python", "-m", "qat", *arguments[:1]]
    return ["python", script]


def program() -> str:
    """How usage lines call the verb: as `command`, but a script by its path alone."""
    words = command()
    return words[1] if words[1:] == sys.argv[:1] else " ".join(words)


class OneLineParser(LightningArgumentParser):
    """An error is one line on stderr and exit code 2, without the usage."""

    def __init__(self, *args: Any, prog: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, prog=prog or program(), **kwargs)

    def options(self) -> dict[str, str]:
        """The help of each option, by its name without the dashes."""
        # argparse has no public list of options; checked with Python 3.11 to 3.14 and jsonargparse 4.53.
        return {
            name[2:]: a.help or "" for a in self._actions for name in a.option_strings if name[:2] == "--"
        }

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        sys.stderr.write(f"error: {explain(message, self.options())}\n")
        sys.exit(2)
