import os
import threading
from pathlib import Path

import pytest
import torch
from PIL import Image

from qat.data import cache, folder


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images of each call that decodes the folder."""
    calls: list[int] = []
    original = folder.decode_all

    def counted(train, test, names):
        calls.append(len(train) + len(test))
        return original(train, test, names)

    monkeypatch.setattr(folder, "decode_all", counted)
    return calls


@pytest.fixture
def written(tmp_path: Path, write_folder):
    return write_folder(tmp_path, {"b": 3, "a": 2}, {"a": 1, "b": 1})


def test_images_and_labels(tmp_path: Path, written) -> None:
    data = folder.load(tmp_path)
    assert data.class_names == ("a", "b")
    assert data.train_labels.tolist() == [0, 0, 1, 1, 1]
    assert data.test_labels.tolist() == [0, 1]
    names = [f"train/a/000{i}.png" for i in range(2)] + [f"train/b/000{i}.png" for i in range(3)]
    assert torch.equal(data.train_images, torch.stack([written[name] for name in names]))
    assert torch.equal(
        data.test_images, torch.stack([written["test/a/0000.png"], written["test/b/0000.png"]])
    )


def test_shape_without_decoding(tmp_path: Path, written, decoded: list[int]) -> None:
    assert folder.shape(tmp_path) == ((3, 6, 5), 2)
    assert decoded == []


def test_hidden_and_other_files_are_ignored(tmp_path: Path, written) -> None:
    (tmp_path / "train" / "a" / ".hidden.png").write_bytes(b"not an image")
    (tmp_path / "train" / "a" / "notes.txt").write_text("not an image")
    (tmp_path / "train" / ".cache").mkdir()
    assert folder.load(tmp_path).train_labels.tolist() == [0, 0, 1, 1, 1]


def test_the_second_load_does_not_decode(tmp_path: Path, written, decoded: list[int]) -> None:
    folder.load(tmp_path)
    first, second = folder.load(tmp_path), folder.load(tmp_path)
    assert decoded == [7]
    assert torch.equal(first.train_images, second.train_images)
    assert torch.equal(first.test_labels, second.test_labels)
    assert first.class_names == second.class_names


def touch(root: Path) -> None:
    file = root / "train" / "b" / "0001.png"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1_000_000_000))


def resize(root: Path) -> None:
    file = root / "test" / "a" / "0000.png"
    time = file.stat().st_mtime_ns
    file.write_bytes(file.read_bytes() + b"\0")
    os.utime(file, ns=(time, time))


def add(root: Path) -> None:
    (root / "test" / "a" / "new.png").write_bytes((root / "test" / "a" / "0000.png").read_bytes())


def remove(root: Path) -> None:
    (root / "train" / "b" / "0002.png").unlink()


def rename(root: Path) -> None:
    # The last image of a becomes the first of b: sizes, times and order stay, only a label changes.
    (root / "train" / "a" / "0001.png").rename(root / "train" / "b" / "!.png")


@pytest.mark.parametrize("change", [touch, resize, add, remove, rename])
def test_a_changed_folder_is_decoded_again(tmp_path: Path, written, decoded: list[int], change) -> None:
    folder.load(tmp_path)
    change(tmp_path)
    data = folder.load(tmp_path)
    assert decoded == [7, 7 + {"add": 1, "remove": -1}.get(change.__name__, 0)]
    assert len(data.train_images) + len(data.test_images) == decoded[1]
    folder.load(tmp_path)
    assert len(decoded) == 2


def test_new_pixels_are_seen(tmp_path: Path, written, write_folder) -> None:
    folder.load(tmp_path)
    file = tmp_path / "test" / "b" / "0000.png"
    file.write_bytes((tmp_path / "test" / "a" / "0000.png").read_bytes())
    os.utime(file, ns=(0, 0))
    assert torch.equal(folder.load(tmp_path).test_images[1], written["test/a/0000.png"])


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_part_is_missing(tmp_path: Path, written, part: str) -> None:
    (tmp_path / part).rename(tmp_path / "other")
    for step in (folder.load, folder.shape):
        with pytest.raises(
            ValueError, match=rf"^data_root: [^\n]*{part} must be [^\n]*does not exist; set [^\n]*$"
        ):
            step(tmp_path)


def test_no_classes(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(
        ValueError, match=r"^data_root: [^\n]*train must be [^\n]*has no folders; set [^\n]*$"
    ):
        folder.load(tmp_path)


def test_classes_differ(tmp_path: Path, write_folder) -> None:
    write_folder(tmp_path, {"a": 1, "b": 1}, {"a": 1, "c": 1})
    with pytest.raises(ValueError, match=r"^data_root: [^\n]*only one of them has 'b', 'c'; [^\n]*$"):
        folder.load(tmp_path)


def test_a_class_without_images(tmp_path: Path, write_folder) -> None:
    write_folder(tmp_path, {"a": 1, "b": 1}, {"a": 1, "b": 0})
    with pytest.raises(ValueError, match=r"^data_root: no image in [^\n]*b'; add [^\n]*$"):
        folder.load(tmp_path)


def test_the_shape_is_of_all_images(tmp_path: Path, write_folder) -> None:
    write_folder(tmp_path, {"a": 2, "b": 2}, {"a": 1, "b": 1}, (1, 6, 5))
    assert folder.shape(tmp_path) == ((1, 6, 5), 2)
    Image.new("RGB", (5, 6), "red").save(tmp_path / "test" / "b" / "0000.png")
    assert folder.shape(tmp_path) == ((3, 6, 5), 2)
    assert folder.load(tmp_path).train_images.shape == (4, 3, 6, 5)
    assert folder.shape(tmp_path) == ((3, 6, 5), 2)


def test_the_cache_is_of_the_rules(tmp_path: Path, written, decoded: list[int], monkeypatch) -> None:
    folder.load(tmp_path)
    monkeypatch.setattr(folder, "RULES", "the rules of another version")
    folder.load(tmp_path)
    assert decoded == [7, 7]


def test_classes_are_numbered_in_natural_order(tmp_path: Path, write_folder) -> None:
    written = write_folder(tmp_path, {"10": 1, "2": 1, "1": 1}, {"10": 1, "2": 1, "1": 1})
    for _ in range(2):  # decoded, then from the cache
        data = folder.load(tmp_path)
        assert data.class_names == ("1", "2", "10")
        assert data.train_labels.tolist() == [0, 1, 2]
        assert torch.equal(data.train_images[2], written["train/10/0000.png"])


KINDS = ["pipe", "pipe behind a link", "folder", "device", "loop", "broken link"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused(tmp_path: Path, written, kind: str) -> None:
    place = tmp_path / "train" / "a" / "0000.png"
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "pipe behind a link":
        os.mkfifo(tmp_path / "pipe")
        place.symlink_to(tmp_path / "pipe")
    else:
        place.symlink_to({"device": "/dev/zero", "loop": place}.get(kind, tmp_path / "nothing"))
    errors = []

    def run() -> None:
        for step in (folder.load, folder.shape):
            with pytest.raises(ValueError, match=r"^data_root: [^\n]*0000\.png'[^\n]*; [^\n]*remove it$"):
                step(tmp_path)
            errors.append(step)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)  # a pipe that is opened never ends
    assert len(errors) == 2


@pytest.mark.parametrize("target", ["loop", "nothing"])
def test_a_class_that_leads_nowhere_is_refused(tmp_path: Path, written, target: str) -> None:
    (tmp_path / "train" / "loop").symlink_to(tmp_path / "train" / target)
    with pytest.raises(ValueError, match=r"^data_root: the link '[^\n]*loop' leads nowhere; [^\n]*$"):
        folder.load(tmp_path)


def test_a_pipe_in_the_place_of_the_cache(tmp_path: Path, written) -> None:
    os.mkfifo(tmp_path / cache.NAME)
    assert len(folder.load(tmp_path).train_images) == 5
    assert (tmp_path / cache.NAME).is_file()


def test_an_unreadable_folder_is_named(tmp_path: Path, written, monkeypatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    for step in (folder.load, folder.shape):
        with pytest.raises(
            ValueError, match=r"^data_root: cannot read '[^\n]*train' \(Permission denied\); [^\n]*$"
        ):
            step(tmp_path)
