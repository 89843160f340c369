"""A comparison as data: setups, sweeps and seeds from YAML, their runs, and the results."""

from qat.experiment.compare import RunsFailedError, compare
from qat.experiment.comparison import Comparison, Setup, parse_comparison, read_comparison
from qat.experiment.plan import TrainingRun, plan
from qat.experiment.results import load_results

__all__ = [
    "Comparison",
    "RunsFailedError",
    "Setup",
    "TrainingRun",
    "compare",
    "load_results",
    "parse_comparison",
    "plan",
    "read_comparison",
]
