"""The data sets by name."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qat.data import cifar10, class_folders, folder, mnist
from qat.data.images import ImageSet
from qat.names import unknown_name

DataName = Literal["mnist5k", "mnist", "cifar10", "folder"]
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Source:
    """Functions of one data set; each takes the data root."""

    shape: Callable[[Path], tuple[Shape, int]]  # ((C, H, W), classes); downloads nothing
    class_names: Callable[[Path], tuple[str, ...]]  # in the order of the labels; downloads nothing
    prepare: Callable[[Path], object]  # downloads or decodes what is missing; in one process only
    load: Callable[[Path], ImageSet]


SOURCES: dict[str, Source] = {
    "mnist5k": Source(
        lambda _: (mnist.SHAPE, 10), lambda _: mnist.DIGITS, lambda _: None, mnist.load_embedded
    ),
    "mnist": Source(lambda _: (mnist.SHAPE, 10), lambda _: mnist.DIGITS, mnist.prepare, mnist.load),
    "cifar10": Source(
        lambda _: (cifar10.SHAPE, 10), lambda _: cifar10.CLASSES, cifar10.prepare, cifar10.load
    ),
    "folder": Source(folder.shape, class_folders.class_names, folder.load, folder.load),
}


def find_source(name: str) -> Source:
    """The source with this name; raises ValueError with the nearest names if there is none."""
    if not isinstance(name, str) or name not in SOURCES:
        raise unknown_name("data", name, SOURCES)
    return SOURCES[name]


def resolve_root(data_root: str | None) -> Path:
    """The folder of the data: `data_root`, else the environment variable QAT_DATA, else `data`."""
    if not isinstance(data_root, str | Path | None) or "\0" in str(data_root):
        raise ValueError(
            f"data_root must be the path of a folder, got {data_root!r}; leave it out for QAT_DATA"
        )
    return Path(data_root or os.environ.get("QAT_DATA") or "data").expanduser()


def data_shape(name: DataName, data_root: str | None = None) -> tuple[Shape, int]:
    """`((C, H, W), classes)` of a data set, without loading it; a folder of images is inspected."""
    return find_source(name).shape(resolve_root(data_root))
