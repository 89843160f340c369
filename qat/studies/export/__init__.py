"""What `scripts/export.py` shows: a run exported, verified on its test set, and measured in bytes."""

from qat.studies.export.cli import main

__all__ = ["main"]
