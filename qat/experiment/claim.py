"""One comparison at a time in a folder."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"  # stays in the folder; the system forgets who holds it when that process ends, however it ends


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a folder until the block ends; make it if it is missing.

    Raises:
        ValueError: another comparison holds it.
        OSError: it cannot be made or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        try:
            _lock(file.fileno())
        except OSError as error:
            rule = f"out must be a folder that no other comparison is using, got {folder}"
            raise ValueError(f"{rule}; wait until that one ends, or choose another folder") from error
        yield


def _lock(file: int) -> None:
    """Lock an open file for this process, or raise OSError."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
