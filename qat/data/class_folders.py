"""The folders of the classes in an image folder, and their order."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

PARTS = ("train", "test")
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


@contextmanager
def readable_paths() -> Iterator[None]:
    """Turns an error of the operating system into a ValueError of one line."""
    try:
        yield
    except OSError as error:
        where, cause = repr(str(error.filename)), error.strerror or type(error).__name__
        raise ValueError(f"data_root: cannot read {where} ({cause}); mend or remove it") from None


@readable_paths()
def class_names(root: Path) -> tuple[str, ...]:
    """The names of the class folders, which must be the same in train/ and test/, in natural order."""
    found = {}
    for part in PARTS:
        path = root / part
        folders = [entry for entry in (path.iterdir() if path.is_dir() else ()) if entry.name[0] != "."]
        for entry in folders:
            _check(entry)
        found[part] = {entry.name for entry in folders if entry.is_dir()}
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
            f" them has {', '.join(map(repr, different[:5]))}; add or remove these folders"
        )
    return tuple(sorted(found["train"], key=natural))


def natural(name: str) -> tuple[object, ...]:
    """The sort key of the natural order.

    Names that are numbers come first, by their values: -1, 0.5, 2, 10. The others follow by their characters,
    but digits inside them count as one number: cat2, cat10, dog. Capitals come before small letters.
    """
    if NUMBER.fullmatch(name):
        return 0, Decimal(name), name
    texts_and_numbers = re.split(r"([0-9]+)", name)
    return 1, [int(part) if n % 2 else part for n, part in enumerate(texts_and_numbers)], name


def _check(entry: Path) -> None:
    if entry.is_symlink() and not entry.exists():
        raise ValueError(f"data_root: the link {str(entry.absolute())!r} leads nowhere; mend or remove it")
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        where = repr(str(entry.absolute()))
        raise ValueError(f"data_root: the name {where} must be in UTF-8; rename it") from None
