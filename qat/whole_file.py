"""A file that is there whole or not at all."""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_whole(path: str | Path, content: bytes) -> Path:
    """Write a file beside its place, then move it there: an error or a full disk leaves no part of it.

    Raises:
        ValueError: there is no such folder, it may not be written to, or the path is one itself.
    """
    path = check_folder(path)
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(content)
            file.close()
            Path(file.name).chmod(0o666 & ~_umask())  # a temporary file is its maker's alone
            Path(file.name).replace(path)
        except BaseException:
            file.close()
            Path(file.name).unlink(missing_ok=True)
            raise
    return path


def check_folder(path: str | Path) -> Path:
    """Ask whether a file can be written there, and return the path.

    Raises:
        ValueError: there is no such folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"path must lie in a folder that exists, got {path}; make {path.parent} first")
    if path.is_dir():
        raise ValueError(f"path must be a file, got the folder {path}; name a file in it")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"path must lie in a folder one can write to, got {path}; choose another")
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
