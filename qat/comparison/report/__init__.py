"""The report of a comparison: numbers, sentences, figures and pages, from the `result.json` files alone."""

from qat.comparison.report.results import load_results
from qat.comparison.report.table import comparison_table
from qat.comparison.report.write import write_report

__all__ = ["comparison_table", "load_results", "write_report"]
