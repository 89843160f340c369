"""The report of a comparison: tables, figures and pages, from the result files alone."""

from qat.report.page import write_report
from qat.report.tables import comparison_table

__all__ = ["comparison_table", "write_report"]
