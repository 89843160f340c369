"""A folder of images `root/{train,test}/<class>/*` of one size, decoded once."""

import hashlib
from pathlib import Path

from torchvision.datasets.folder import IMG_EXTENSIONS  # type: ignore[import-untyped] # ships no types

from qat.data import cache
from qat.data.decoding import channels_of, decode, decode_all
from qat.data.images import ImageSet

PARTS = ("train", "test")


def shape(root: Path) -> tuple[tuple[int, int, int], int]:
    """`((C, H, W), classes)` by the folders' names and the first image; raises ValueError as `load`."""
    names = class_names(root)
    first = image_files(root / "train" / names[0])[0]
    channels, height, width = decode(first, channels_of(first)).shape
    return (channels, height, width), len(names)


def load(root: Path) -> ImageSet:
    """The images of the folder, from its cache if no file was added, removed or changed since.

    Classes are numbered in the order of their names. The first image decides the size and whether all images
    are grayscale (1 channel) or colour (3 channels). Raises ValueError if the folder does not fit.
    """
    names = class_names(root)
    files = {
        part: [(file, label) for label, name in enumerate(names) for file in image_files(root / part / name)]
        for part in PARTS
    }
    key = fingerprint([file for part in PARTS for file, _ in files[part]])
    images = cache.read(root, key)
    if images is None:
        images = decode_all(files["train"], files["test"], names)
        cache.write(root, key, images)
    return images


def class_names(root: Path) -> tuple[str, ...]:
    """The sorted names of the class folders, which must be the same in train/ and test/."""
    found = {}
    for part in PARTS:
        path = root / part
        folders = path.iterdir() if path.is_dir() else ()
        found[part] = {entry.name for entry in folders if entry.is_dir() and not entry.name.startswith(".")}
        if not found[part]:
            raise ValueError(
                f"data_root: {path.absolute()} must be a folder with one folder of images per class, but"
                f" {'has no folders' if path.is_dir() else 'does not exist'}; set data_root or QAT_DATA to"
                f" the folder that holds train/ and test/"
            )
    different = sorted(found["train"] ^ found["test"])
    if different:
        raise ValueError(
            f"data_root: train/ and test/ in {root.absolute()} must have the same classes, but only one of"
            f" them has {', '.join(different[:5])}; add or remove these folders"
        )
    return tuple(sorted(found["train"]))


def image_files(path: Path) -> list[Path]:
    """The image files in a class folder, sorted by name; not hidden files or files with other suffixes."""
    files = [file for file in path.iterdir() if file.suffix.lower() in IMG_EXTENSIONS and file.name[0] != "."]
    if not files:
        remedy = f"add images ({' '.join(IMG_EXTENSIONS)}) or remove the class from train/ and test/"
        raise ValueError(f"data_root: no image in {path.absolute()}; {remedy}")
    return sorted(files, key=lambda file: file.name)


def fingerprint(files: list[Path]) -> str:
    """A digest of the parts, classes, names, sizes and modification times of the files."""
    digest = hashlib.sha256()
    for file in files:
        status = file.stat()
        line = f"{'/'.join(file.parts[-3:])}\0{status.st_size}\0{status.st_mtime_ns}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
