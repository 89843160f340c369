"""Downloads that fail in one line."""

from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path


def missing(what: str, path: Path, reason: str) -> ValueError:
    """The error for a data set that is not where it was looked for."""
    return ValueError(
        f"data_root: no {what} in {path.absolute()} ({reason}); use --data mnist5k (train.py: --data.name"
        f" mnist5k), which needs no download, or set data_root or QAT_DATA to the folder that holds it"
    )


def download(what: str, path: Path, fetch: Callable[[], object]) -> None:
    """Call `fetch`; a failure (network, disk, checksum) is a ValueError of one line that names `path`."""
    made = [p for p in (path, *path.parents) if not p.exists()]
    try:
        fetch()
    except (OSError, RuntimeError, HTTPException) as error:
        for folder in made:  # from the inside out; what holds something stays
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        cause = str(error).strip().split("\n")[0].rstrip(":") or type(error).__name__
        raise missing(what, path, f"the download failed: {cause}") from None
