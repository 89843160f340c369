"""Several runs side by side: setups, their training, and the report."""

from qat.comparison.compare import compare
from qat.comparison.plan import Run, Settings, plan
from qat.comparison.report import comparison_table, load_results, write_report
from qat.comparison.setups import SETUPS, Setup, SetupName

__all__ = [
    "SETUPS",
    "Run",
    "Settings",
    "Setup",
    "SetupName",
    "compare",
    "comparison_table",
    "load_results",
    "plan",
    "write_report",
]
