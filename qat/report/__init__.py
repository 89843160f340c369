"""The report of a comparison: numbers, sentences, figures and pages, from the `result.json` files alone."""

from qat.report.table import comparison_table
from qat.report.write import write_report

__all__ = ["comparison_table", "write_report"]
