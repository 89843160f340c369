"""Several runs side by side: setups, their training, and their results."""

from qat.experiment.compare import compare, prepare
from qat.experiment.plan import Run, Settings, plan
from qat.experiment.results import load_results
from qat.experiment.setups import SETUPS, USUAL, Setup

__all__ = [
    "SETUPS",
    "USUAL",
    "Run",
    "Settings",
    "Setup",
    "compare",
    "load_results",
    "plan",
    "prepare",
]
