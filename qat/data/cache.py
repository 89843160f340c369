"""Decoded image folders on disk: in the folder itself, or in torch's cache if the folder is read-only."""

import hashlib
from pathlib import Path
from zipfile import ZipFile

import torch

from qat.data.images import ImageSet
from qat.whole_file import draft_of

NAME = ".qat_cache.pt"


def places(root: Path) -> list[Path]:
    """Where the cache of `root` may be, the preferred place first."""
    name = hashlib.sha256(str(root.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return [root / NAME, Path(torch.hub.get_dir()) / "qat" / f"{name}.pt"]


def read(root: Path, key: str) -> ImageSet | None:
    """The images saved under `key`; None if there is no cache, or it is broken or of other files."""
    for path in places(root):
        try:
            if path.is_file():  # a pipe would never end
                with ZipFile(path) as file:  # torch does not look at the checksums
                    is_whole = file.testzip() is None
                saved = torch.load(path, weights_only=True)
                if is_whole and saved["key"] == key:
                    return ImageSet(**saved["images"])
        except Exception:  # torch.load raises many types for damaged files; decoding again replaces the cache
            continue
    return None


def write(root: Path, key: str, images: ImageSet) -> None:
    """Save the images under `key` in the first place that can be written; without one, save nothing."""
    for path in places(root):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft_of(path) as draft:
                torch.save({"key": key, "images": vars(images)}, draft)
            return
        except (OSError, RuntimeError, ValueError):  # torch.save raises RuntimeError if it cannot write
            continue
