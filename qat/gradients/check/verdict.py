"""What a check of a gradient found."""

from dataclasses import dataclass
from typing import Literal

CheckStatus = Literal["ok", "note", "refused", "skipped", "failed"]


@dataclass(frozen=True)
class Finding:
    """The result of one check, with an explanation that may be empty."""

    check: str
    status: CheckStatus
    text: str = ""


@dataclass(frozen=True)
class Verdict:
    """All findings of `check_gradient`, in the order of the checks; `print` shows one per line."""

    name: str  # of the function
    against: str  # what was checked: finite differences, a stated surrogate, a contract
    findings: tuple[Finding, ...]  # one or more for each check that ran

    @property
    def ok(self) -> bool:
        """Whether no check failed. A refused second derivative is no failure."""
        return not self.faults

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that failed."""
        return tuple(found for found in self.findings if found.status == "failed")

    def status(self, check: str) -> CheckStatus:
        """The status of one check: `failed` if any of its findings is, `skipped` if it did not run."""
        statuses = [found.status for found in self.findings if found.check == check]
        return "failed" if "failed" in statuses else statuses[-1] if statuses else "skipped"

    def __str__(self) -> str:
        lines = [f"{self.name}: {'ok' if self.ok else 'FAILED'} (checked against {self.against})"]
        lines += [f"  {found.check:18} {found.status:8} {found.text}".rstrip() for found in self.findings]
        return "\n".join(lines)
