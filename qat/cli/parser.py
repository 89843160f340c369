"""The parser of each verb: it knows how the verb was called, and says what is wrong in one line."""

import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn

from lightning.pytorch.cli import LightningArgumentParser

from qat.cli import VERBS
from qat.options import explain


def command(verb: str = "") -> list[str]:
    """The words that call this verb; `verb` is its name, for a process whose own arguments do not tell."""
    script, *arguments = sys.argv
    words = [word for word in (verb, *arguments[:1]) if word in VERBS][:1]
    if Path(script).name in ("qat", "qat.exe"):
        return ["qat", *words]
    found = shutil.which("python")
    python = "python" if found and Path(found) == Path(sys.executable) else sys.executable
    return [python, script] if Path(script).stem in VERBS else [python, "-m", "qat", *words]


def program() -> str:
    """How usage lines call the verb: `qat VERB`, `scripts/VERB.py` or `python -m qat VERB`."""
    first, *words = command()
    return " ".join(words if words == sys.argv[:1] else [Path(first).stem, *words])


class OneLineParser(LightningArgumentParser):
    """An error is one line on stderr and exit code 2, without the usage."""

    def __init__(self, *args: Any, prog: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, prog=prog or program(), **{"allow_abbrev": False} | kwargs)

    def options(self) -> dict[str, str]:
        """The help of each option, by its name without the dashes."""
        # argparse has no public list of options; checked with Python 3.11 to 3.14 and jsonargparse 4.53.
        named = [(name, action.help) for action in self._actions for name in action.option_strings]
        return {name[2:]: text or "" for name, text in named if name.startswith("--")}

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        sys.stderr.write(f"error: {explain(message, self.options())}\n")
        sys.exit(2)
