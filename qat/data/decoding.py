"""Decode image files to bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from qat.data.images import ImageSet
from qat.progress import tracked

GRAY = ("1", "L", "LA")
COLOUR = ("P", "RGB", "RGBA", "CMYK", "YCbCr")


def channels_of(file: Path) -> int:
    """1 for a grayscale image, 3 for a colour image."""
    with _opened(file) as image:
        return 1 if image.mode in GRAY else 3


def decode(file: Path, channels: int) -> Tensor:
    """One image as uint8 `(channels, H, W)`; raises ValueError if it cannot be read or is not 8-bit."""
    with _opened(file) as image:
        if image.mode not in GRAY + COLOUR:
            raise ValueError(f"8 bits a channel expected, got mode {image.mode}")
        pixels = np.array(image.convert("L" if channels == 1 else "RGB"))
    return torch.from_numpy(pixels).view(*pixels.shape[:2], channels).permute(2, 0, 1)


@contextmanager
def _opened(file: Path) -> Iterator[Image.Image]:
    try:
        with Image.open(file) as image:
            yield image
    except Exception as error:  # Pillow raises many types for damaged files
        cause = str(error).split("\n")[0]
        rule = f"data_root: cannot read the image {file.absolute()} ({cause})"
        raise ValueError(f"{rule}; replace or remove it") from None


def decode_all(
    train: list[tuple[Path, int]], test: list[tuple[Path, int]], names: tuple[str, ...]
) -> ImageSet:
    """Decode (file, label) pairs; all images must have the size of the first and get its channels."""
    files = [file for file, _ in train + test]
    first = decode(files[0], channels_of(files[0]))
    images = torch.empty(len(files), *first.shape, dtype=torch.uint8)
    for i, file in enumerate(tracked(files, "Decoding images (once)")):
        image = decode(file, len(first))
        if image.shape != first.shape:
            size, needed = (f"{x.shape[2]}x{x.shape[1]}" for x in (image, first))
            rule = f"data_root: all images must have one size, {needed} as {files[0].name}"
            raise ValueError(f"{rule}, but {file.absolute()} has {size}; resize or remove it")
        images[i] = image
    labels = torch.tensor([label for _, label in train + test])
    n = len(train)
    return ImageSet(images[:n], labels[:n], images[n:], labels[n:], names)
