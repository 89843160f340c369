"""Decoded image folders on disk: in the folder itself, or in torch's cache where that is read-only."""

import hashlib
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import torch

from qat.data.images import ImageSet

NAME = ".qat_cache.pt"


def places(root: Path) -> list[Path]:
    """Where the cache of `root` may lie, the preferred place first."""
    name = hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return [root / NAME, Path(torch.hub.get_dir()) / "qat" / f"{name}.pt"]


def read(root: Path, key: str) -> ImageSet | None:
    """The images saved under `key`; None where there is no cache, a broken one or one of other files."""
    for path in places(root):
        try:
            saved = torch.load(path, weights_only=True)
            if saved["key"] == key:
                return ImageSet(**saved["images"])
        except Exception:  # torch.load raises many types for damaged files; decoding again mends all of them
            continue
    return None


def write(root: Path, key: str, images: ImageSet) -> None:
    """Save the images under `key` in the first place that can be written; in none, go without."""
    for path in places(root):
        # Written beside its place and moved: no reader sees half a file, two writers do no harm.
        unfinished = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save({"key": key, "images": vars(images)}, unfinished)
            unfinished.replace(path)
            return
        except (OSError, RuntimeError):  # torch.save raises RuntimeError where it cannot open or write
            with suppress(OSError):
                unfinished.unlink()
