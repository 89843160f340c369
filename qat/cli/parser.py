"""The parser that says what is wrong in one line."""

import sys
from typing import NoReturn

from lightning.pytorch.cli import LightningArgumentParser

from qat.options import explain


class OneLineParser(LightningArgumentParser):
    """An error is one line on stderr and exit code 2, without the usage."""

    def options(self) -> dict[str, str]:
        """The help of each option by its name without the dashes, those of the subcommands too."""
        found: dict[str, str] = {}
        for action in self._actions:
            found |= {name[2:]: action.help or "" for name in action.option_strings if name[:2] == "--"}
            for parser in action.choices.values() if isinstance(action.choices, dict) else ():  # subcommands
                found |= parser.options()
        return found

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        sys.stderr.write(f"error: {explain(message, self.options())}\n")
        sys.exit(2)
