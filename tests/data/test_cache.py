import os
from pathlib import Path

import pytest
import torch

from qat.data import cache
from qat.data.images import ImageSet


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def image_set(value: int) -> ImageSet:
    images, labels = torch.full((4, 1, 2, 2), value, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    return ImageSet(images[:3], labels[:3], images[3:], labels[3:], ("a", "b"))


def test_what_was_written_is_read(root: Path) -> None:
    cache.write(root, "key", image_set(7))
    found = cache.read(root, "key")
    assert found is not None
    assert all(
        torch.equal(getattr(found, name), value)
        for name, value in vars(image_set(7)).items()
        if name != "class_names"
    )
    assert found.class_names == ("a", "b")
    assert [file.name for file in root.iterdir()] == [".qat_cache.pt"]


def test_no_cache_or_another_key(root: Path) -> None:
    assert cache.read(root, "key") is None
    cache.write(root, "key", image_set(7))
    assert cache.read(root, "other") is None
    cache.write(root, "other", image_set(8))
    assert cache.read(root, "key") is None
    assert cache.read(root, "other") is not None


class Harm:
    """Unpickled carelessly, it makes the folder `path`."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("content", [b"", b"garbage", "half", "dict", "list", "code", "bit"])
def test_a_broken_cache_is_none(root: Path, content) -> None:
    cache.write(root, "key", image_set(7))
    file = root / cache.NAME
    if content == "half":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif content == "bit":  # in the pixels: torch reads it without a word
        file.write_bytes(file.read_bytes().replace(b"\x07" * 12, b"\x07" * 11 + b"\x06"))
    elif content == "dict":
        torch.save({"key": "key", "images": {"train_images": torch.zeros(1)}}, file)
    elif content == "list":
        torch.save([1, 2], file)
    elif content == "code":
        torch.save({"key": "key", "images": Harm(root / "harm")}, file)
    else:
        file.write_bytes(content)
    assert cache.read(root, "key") is None
    assert not (root / "harm").exists()
    cache.write(root, "key", image_set(9))
    found = cache.read(root, "key")
    assert found is not None
    assert int(found.test_images[0, 0, 0, 0]) == 9


def test_a_read_only_root_uses_the_home(root: Path, tmp_path: Path) -> None:
    (root / cache.NAME).mkdir()  # a folder in its place: cannot be written, for the superuser neither
    cache.write(root, "key", image_set(7))
    assert cache.read(root, "key") is not None
    homes = [file for file in (tmp_path / "home").rglob("*") if file.is_file()]
    assert homes == [cache.places(root)[1]]
    assert list((root / cache.NAME).iterdir()) == []
    assert [file.name for file in root.iterdir()] == [cache.NAME]


def test_nowhere_to_write(root: Path, tmp_path: Path) -> None:
    (root / cache.NAME).mkdir()
    (tmp_path / "home").write_text("a file where the folder would be")
    cache.write(root, "key", image_set(7))
    assert cache.read(root, "key") is None


def test_an_interrupted_write_leaves_the_old_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write(root, "old", image_set(7))

    def stop(obj: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", stop)
    cache.write(root, "new", image_set(8))
    assert cache.read(root, "old") is not None
    assert [file.name for file in root.iterdir()] == [cache.NAME]


def test_roots_have_their_own_places(root: Path, tmp_path: Path) -> None:
    assert cache.places(root)[1] != cache.places(tmp_path)[1]
    assert cache.places(root)[1] == cache.places(root / ".." / root.name)[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train_images", torch.zeros(3, 1, 2, 2)),
        ("train_labels", torch.tensor([0, 1])),
        ("test_labels", torch.tensor([2])),
        ("class_names", ("a",)),
    ],
)
def test_content_that_does_not_fit_is_none(root: Path, name: str, value) -> None:
    torch.save({"key": "key", "images": vars(image_set(7)) | {name: value}}, root / cache.NAME)
    assert cache.read(root, "key") is None
