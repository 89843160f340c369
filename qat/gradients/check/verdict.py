"""What a check of a gradient found."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "note", "refused", "skipped", "failed"]


@dataclass(frozen=True)
class Finding:
    """One check: its name, how it went, and what that means (empty where there is nothing to say)."""

    check: str
    outcome: Outcome
    text: str = ""


@dataclass(frozen=True)
class Verdict:
    """All findings of `check_gradient`, in the order of the checks; `print` shows them one a line.

    Args:
        name: of the function.
        stated: whether a surrogate was stated.
        findings: one or more for each check that ran.
    """

    name: str
    stated: bool
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed; a refused second derivative is fine."""
        return not self.faults

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that failed."""
        return tuple(found for found in self.findings if found.outcome == "failed")

    def outcome(self, check: str) -> Outcome:
        """How one check went: `failed` where any of its findings did, `skipped` where it did not run."""
        outcomes = [found.outcome for found in self.findings if found.check == check]
        return "failed" if "failed" in outcomes else outcomes[-1] if outcomes else "skipped"

    def __str__(self) -> str:
        against = "the stated surrogate" if self.stated else "finite differences"
        lines = [f"{self.name}: {'ok' if self.ok else 'FAILED'} (checked against {against})"]
        lines += [f"  {found.check:18} {found.outcome:8} {found.text}".rstrip() for found in self.findings]
        return "\n".join(lines)
