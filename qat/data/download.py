"""Errors of one line for data sets that are missing or cannot be downloaded."""

from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path


def missing(what: str, path: Path, reason: str) -> ValueError:
    """The error for a data set that is not in `path`."""
    return ValueError(
        f"data_root: no {what} in {path.absolute()} ({reason}); set data_root or QAT_DATA to the folder that"
        f" holds it, or use the data set mnist5k, which needs no download"
    )


def download(what: str, path: Path, fetch: Callable[[], object]) -> None:
    """Call `fetch`; raises a ValueError of one line that names `path` if network, disk or checksum fail."""
    made = [p for p in (path, *path.parents) if not p.exists()]
    try:
        fetch()
    except (OSError, RuntimeError, HTTPException) as error:
        for folder in made:  # the innermost first; a folder that holds something stays
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        cause = str(error).strip().split("\n")[0].rstrip(":") or type(error).__name__
        raise missing(what, path, f"the download failed: {cause}") from None
