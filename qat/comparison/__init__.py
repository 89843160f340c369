"""Several runs side by side: setups, their training, and the report."""

from qat.comparison.compare import compare, prepare
from qat.comparison.plan import Run, Settings, plan
from qat.comparison.report import comparison_table, load_results, write_report
from qat.comparison.setups import SETUPS, USUAL, Setup

__all__ = [
    "SETUPS",
    "USUAL",
    "Run",
    "Settings",
    "Setup",
    "compare",
    "comparison_table",
    "load_results",
    "plan",
    "prepare",
    "write_report",
]
