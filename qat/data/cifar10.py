"""CIFAR-10 (Krizhevsky 2009): from a folder of images if there is one, else from torchvision."""

from pathlib import Path

import torch
from torch import Tensor
from torchvision.datasets import CIFAR10  # type: ignore[import-untyped] # ships no types

from qat.data import folder
from qat.data.download import download, missing
from qat.data.images import ImageSet
from qat.names import one_line

SHAPE = (3, 32, 32)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def image_folder(root: Path) -> Path | None:
    """`root/cifar10` if it holds train/ and test/, else None."""
    path = root / "cifar10"
    return path if (path / "train").is_dir() and (path / "test").is_dir() else None


def prepare(root: Path) -> None:
    """Decode the image folder once, or download torchvision's files if they are missing."""
    path = image_folder(root)
    if path is not None:
        load(root)
    elif not (root / CIFAR10.base_folder).is_dir():
        download("CIFAR-10", root, lambda: CIFAR10(root, download=True))


def load(root: Path) -> ImageSet:
    """50,000 training and 10,000 test images; raises ValueError if they are missing or damaged."""
    path = image_folder(root)
    if path is None:
        return _load_pickles(root)
    images = folder.load(path)
    found = tuple(images.train_images.shape[1:])
    if images.class_names != CLASSES or found != SHAPE:
        raise ValueError(
            f"data_root: {path.absolute()} is not CIFAR-10: expected {SHAPE} images of {', '.join(CLASSES)},"
            f" got {found} of {', '.join(images.class_names)}; use --data folder for other images"
        )
    return images


def _load_pickles(root: Path) -> ImageSet:
    batches = (root / CIFAR10.base_folder).absolute()
    if not batches.is_dir():
        raise missing("CIFAR-10", root, f"neither {CIFAR10.base_folder}/ nor cifar10/train and cifar10/test")
    try:
        train, test = CIFAR10(root, train=True), CIFAR10(root, train=False)
        return ImageSet(*_tensors(train), *_tensors(test), CLASSES)
    except RuntimeError:  # torchvision compares each file with its checksum
        why = "a file is missing or fails its checksum"
    except (ValueError, LookupError, TypeError) as error:
        why = one_line(error)
    raise ValueError(f"data_root: {batches} is damaged ({why}); delete it, run again")


def _tensors(part: CIFAR10) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(part.data).permute(0, 3, 1, 2), torch.tensor(part.targets)
