"""Files that are written whole or not at all."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any


def write_whole(path: str | Path, content: bytes | str) -> Path:
    """Write a file, text as UTF-8, and return its path. An error or a full disk leaves no part of it.

    Raises:
        ValueError: as `check_folder`.
        OSError: as `draft_of`.
    """
    with _renamed(path, f".{Path(path).name}.{token_hex(4)}.part") as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def write_json(path: str | Path, content: Any) -> Path:
    """Write a file in strict JSON: a number that is not finite becomes null.

    Raises:
        ValueError: as `check_folder`.
    """
    return write_whole(path, json.dumps(_finite(content), indent=1, allow_nan=False))


def draft_of(path: str | Path) -> AbstractContextManager[Path]:
    """Give a temporary path beside `path`, with the same suffix; its file becomes `path` when the block ends.

    If the block raises, the temporary file is removed, and a file that was at `path` stays as it was. If the
    process is killed or the machine stops, `path` holds the earlier file or the new one, never a part.

    Raises:
        ValueError: as `check_folder`.
        OSError: the file cannot be written; names it.
    """
    return _renamed(path, f".{token_hex(4)}.{Path(path).name}")


@contextmanager
def _renamed(path: str | Path, name: str) -> Iterator[Path]:
    path = check_folder(path)
    draft = path.with_name(name)
    try:
        yield draft
        _sync(draft)
        draft.replace(path)
        if os.name == "posix":
            _sync(path.parent)  # the new name, too; Windows opens no folders
    except OSError as error:
        if error.errno and not error.filename:  # a full disk names no file
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_folder(path: str | Path) -> Path:
    """Check that a file can be written at `path`, and return the path.

    Raises:
        ValueError: its folder does not exist or is not writable, or the path is a folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"path must lie in a folder that exists, got {path}; make {path.parent} first")
    if path.is_dir():
        raise ValueError(f"path must be a file, got the folder {path}; name a file in it")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"path must lie in a writable folder, got {path}; choose another")
    return path


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
