"""A folder of images `root/{train,test}/<class>/*` of one size, decoded once."""

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from torchvision.datasets.folder import IMG_EXTENSIONS  # type: ignore[import-untyped] # ships no types

from qat.data import cache
from qat.data.class_folders import PARTS, class_names, readable_paths
from qat.data.decoding import RULES, decode, decode_all, is_colour
from qat.data.images import ImageSet


@dataclass(frozen=True)
class FolderFiles:
    """The image files of a folder: (file, class number) pairs."""

    class_names: tuple[str, ...]
    train: list[tuple[Path, int]]
    test: list[tuple[Path, int]]
    key: str  # a digest of the files and of the rules by which they are decoded


def shape(root: Path) -> tuple[tuple[int, int, int], int]:
    """`((C, H, W), classes)`, from the cache or the files' headers; raises ValueError as `load`."""
    listing = list_files(root)
    images = cache.read(root, listing.key)
    if images is not None:
        channels, height, width = images.train_images.shape[1:]
    else:
        files = [file for file, _ in listing.train + listing.test]
        channels = 3 if any(is_colour(file) for file in files) else 1
        height, width = decode(files[0])[0].shape[1:]
    return (channels, height, width), len(listing.class_names)


def load(root: Path) -> ImageSet:
    """The images of the folder, from its cache if no file was added, removed or changed since.

    Classes are numbered in the natural order of their names: 1, 2, 10. All images are read in colour
    (3 channels) if one is, else in gray (1 channel). Raises ValueError if the folder does not fit.
    """
    listing = list_files(root)
    images = cache.read(root, listing.key)
    if images is None:
        images = decode_all(listing.train, listing.test, listing.class_names)
        cache.write(root, listing.key, images)
    return images


@readable_paths()
def list_files(root: Path) -> FolderFiles:
    """The files of the folder in their order; raises ValueError if the folder does not fit."""
    names = class_names(root)
    train, test = (
        [(file, n) for n, name in enumerate(names) for file in image_files(root / part / name)]
        for part in PARTS
    )
    return FolderFiles(names, train, test, fingerprint([file for file, _ in train + test]))


def image_files(path: Path) -> list[Path]:
    """The image files in a class folder, sorted by name; not hidden files or files with other suffixes."""
    files = [file for file in path.iterdir() if file.suffix.lower() in IMG_EXTENSIONS and file.name[0] != "."]
    if not files:
        remedy = f"add images ({' '.join(IMG_EXTENSIONS)}) or remove the class from train/ and test/"
        raise ValueError(f"data_root: no image in {str(path.absolute())!r}; {remedy}")
    return sorted(files, key=lambda file: file.name)


def fingerprint(files: list[Path]) -> str:
    """A digest of `RULES` and of the parts, classes, names, sizes and modification times of the files.

    Raises ValueError for what is no file: a pipe would never end, a device neither.
    """
    digest = hashlib.sha256(RULES.encode())
    for file in files:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            rule = f"data_root: {str(file.absolute())!r} must be a file, got {stat.filemode(status.st_mode)}"
            raise ValueError(f"{rule}; remove it")
        line = f"{'/'.join(file.parts[-3:])}\0{status.st_size}\0{status.st_mtime_ns}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
