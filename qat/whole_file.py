"""Files that are written whole or not at all."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any


def write_whole(path: str | Path, content: bytes | str) -> Path:
    """Write a file, text as UTF-8, and return its path. An error or a full disk leaves no part of it.

    Raises:
        ValueError: as `check_folder`.
    """
    with draft_of(path) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def write_json(path: str | Path, content: Any) -> Path:
    """Write a file in strict JSON: a number that is not finite becomes null.

    Raises:
        ValueError: as `check_folder`.
    """
    return write_whole(path, json.dumps(_finite(content), indent=1, allow_nan=False))


@contextmanager
def draft_of(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, with the same suffix; its file becomes `path` when the block ends.

    If the block raises, the temporary file is removed, and a file that was at `path` stays as it was.

    Raises:
        ValueError: as `check_folder`.
    """
    path = check_folder(path)
    draft = path.with_name(f".{token_hex(4)}.{path.name}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


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
