"""Check a gradient with one call, which explains what it finds."""

from qat.gradients.check.check import check_gradient
from qat.gradients.check.verdict import Finding, Verdict

__all__ = ["Finding", "Verdict", "check_gradient"]
