"""How a verb ends early: one line on stderr and an exit code."""

import pickle
import sys
from typing import NoReturn

from lightning.fabric.utilities.exceptions import MisconfigurationException

BAD_INPUT = (ValueError, OSError, pickle.UnpicklingError, MisconfigurationException)  # before a run starts


def leave(message: str, code: int) -> NoReturn:
    """Print one line on stderr and exit with a code."""
    print(message, file=sys.stderr)
    sys.exit(code)
