"""Check an output folder before the work starts."""

import os
from pathlib import Path


def check_writable(argument: str, folder: str | Path) -> None:
    """Raise ValueError, which names the option `argument`, unless a folder can be made and written to."""
    if not str(folder):
        raise ValueError(f"{argument} must name a folder, got nothing; give one such as runs/mine")
    existing = Path(folder).absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "is not writable" if existing.is_dir() else "is a file, not a folder"
        raise ValueError(
            f"{argument} must be a writable folder, got {folder}: {existing} {why}; "
            "choose another, such as runs/mine"
        )
