"""Decode image files to bytes."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

from qat.data.images import ImageSet
from qat.names import one_line
from qat.progress import tracked

# Whoever changes what a file decodes to changes this text: a cache written under another one is not read.
RULES = "1: white behind transparency, upright by EXIF, in colour if one image is, first picture of an MPO"
GRAY = ("1", "L", "LA")
COLOUR = ("P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
# Not those that run a program (EPS).
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
BACKGROUND = "white"
# In the layout of the bytes in a file: 16 bits a channel; ";16" alone is 5-6-5.
DEEP = re.compile(r";16[BLN]")

log = logging.getLogger(__name__)


def is_colour(file: Path) -> bool:
    """Whether an image is in colour by its header, whatever its pixels."""
    with _opened(file) as image:
        return image.mode in COLOUR


def decode(file: Path) -> tuple[Tensor, bool]:
    """One image as uint8 `(1, H, W)` or, in colour, `(3, H, W)`, and whether it is transparent somewhere.

    It is turned upright as its EXIF data say, and what is transparent is laid on white.

    Raises:
        ValueError: the file cannot be read, holds several pictures or more than 8 bits a channel, or shows
            nothing on white.
    """
    with _opened(file) as image:
        if getattr(image, "is_animated", False) and image.format != "MPO":  # a camera adds views to its JPEG
            raise ValueError(f"one picture expected, got {image.n_frames}")  # type: ignore[attr-defined]
        if image.mode not in GRAY + COLOUR or _is_deep(image):
            raise ValueError(f"8 bits a channel expected, got more: mode {image.mode}")
        mode = "RGB" if image.mode in COLOUR else "L"
        image.load()  # turns a TIFF upright
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
        upright: Image.Image = ImageOps.exif_transpose(image) if turned else image
        lowest = highest = 255  # of alpha
        if upright.has_transparency_data:
            upright = upright.convert("RGBA")
            alpha = np.array(upright.getchannel("A"))
            lowest, highest = int(alpha.min()), int(alpha.max())
            upright = Image.alpha_composite(Image.new("RGBA", upright.size, BACKGROUND), upright)
        pixels = np.array(upright if upright.mode == mode else upright.convert(mode))
        if lowest < highest and pixels.min() == 255:
            raise ValueError(f"all that it shows is {BACKGROUND}, and so is what lies behind transparency")
    return torch.from_numpy(pixels).view(*pixels.shape[:2], -1).permute(2, 0, 1), lowest < 255


def _is_deep(image: Image.Image) -> bool:
    # Pillow reads colours of 16 bits as 8 bits, the lower half lost; only the layout in the file tells.
    layouts = [tile.args for tile in image.tile]  # type: ignore[attr-defined]
    deep_ppm = image.format == "PPM" and any(not isinstance(x, str) and x[-1] > 255 for x in layouts)
    return deep_ppm or bool(DEEP.search(str(layouts)))


@contextmanager
def _opened(file: Path) -> Iterator[Image.Image]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Pillow passes over, as broken EXIF data
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as image:
                yield image
    except Exception as error:  # Pillow raises many types for damaged files
        cause = one_line(error)
        rule = f"data_root: cannot read the image {str(file.absolute())!r} ({cause})"
        raise ValueError(f"{rule}; replace, convert or remove it") from None


def decode_all(
    train: list[tuple[Path, int]], test: list[tuple[Path, int]], names: tuple[str, ...]
) -> ImageSet:
    """Decode (file, label) pairs: in colour if at least one image is; all must have one size."""
    files = [file for file, _ in train + test]
    colours = transparent = 0
    for i, file in enumerate(tracked(files, "Decoding images (once)")):
        image, is_transparent = decode(file)
        if i == 0:
            first = image
            images = _room_for(len(files), image)
        if image.shape[1:] != first.shape[1:]:
            size, needed = (f"{x.shape[2]}x{x.shape[1]}" for x in (image, first))
            rule = f"data_root: all images must have one size, {needed} as {files[0].name!r}"
            raise ValueError(f"{rule}, but {str(file.absolute())!r} has {size}; resize or remove it")
        if len(image) > images.shape[1]:
            images = images.expand(-1, 3, -1, -1).contiguous()
        images[i] = image
        colours += len(image) == 3
        transparent += is_transparent
    rule = "data_root: %d of %d images are %s"
    if 0 < colours < len(files):
        log.info(rule, colours, len(files), "in colour, so all are read in colour")
    if transparent:
        log.info(rule, transparent, len(files), f"transparent somewhere, so they are laid on {BACKGROUND}")
    labels = torch.tensor([label for _, label in train + test])
    n = len(train)
    return ImageSet(images[:n], labels[:n], images[n:], labels[n:], names)


def _room_for(count: int, image: Tensor) -> Tensor:
    needed, memory = count * image.numel(), psutil.virtual_memory().total
    if needed > memory:
        rule = f"data_root: all images must fit in memory, {memory / 1e9:,.0f} GB"
        raise ValueError(f"{rule}, but {count:,} of {needed / count:,.0f} bytes do not; resize them")
    return torch.empty(count, *image.shape, dtype=torch.uint8)
