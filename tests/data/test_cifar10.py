import hashlib
import os
import pickle
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from qat.data import cifar10


@pytest.fixture
def pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A data root with 20 training and 10 test images in CIFAR-10's format, and its checksums.

    A test may change the content of each batch.
    """
    changed = getattr(request, "param", {})

    def save(name: str, content: object) -> list[str]:
        file = tmp_path / CIFAR10.base_folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(pickle.dumps(content))
        return [name, hashlib.md5(file.read_bytes()).hexdigest()]

    def batch(start: int) -> dict[str, object]:
        pixels = (np.arange(10 * 3072) + start).astype(np.uint8).reshape(10, 3072)
        return {"data": pixels, "labels": [(start + i) % 10 for i in range(10)], **changed}

    meta = save("batches.meta", {"label_names": list(cifar10.CLASSES)})
    monkeypatch.setattr(
        CIFAR10, "train_list", [save("data_batch_1", batch(0)), save("data_batch_2", batch(3))]
    )
    monkeypatch.setattr(CIFAR10, "test_list", [save("test_batch", batch(5))])
    monkeypatch.setattr(CIFAR10, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    return tmp_path


def test_pickles_are_read_exactly(pickles: Path) -> None:
    cifar10.prepare(pickles)
    data = cifar10.load(pickles)
    first = torch.arange(30_720).to(torch.uint8).view(10, 3, 32, 32)
    assert torch.equal(data.train_images, torch.cat([first, first + 3]))
    assert torch.equal(data.test_images, first + 5)
    assert data.train_images.is_contiguous()
    assert data.train_labels.tolist() == [*range(10), *range(3, 10), 0, 1, 2]
    assert data.test_labels.tolist() == [*range(5, 10), *range(5)]
    assert data.class_names == cifar10.CLASSES


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "batches.meta"])
def test_a_damaged_pickle(pickles: Path, name: str) -> None:
    file = pickles / CIFAR10.base_folder / name
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(
        ValueError, match=r"^data_root: [^\n]*cifar-10-batches-py is damaged [^\n]*delete it[^\n]*$"
    ):
        cifar10.load(pickles)


@pytest.mark.parametrize(
    "pickles",
    [
        {"data": np.zeros((10, 768), np.uint8)},  # 16 x 16
        {"data": np.zeros((10, 3072), np.float32)},
        {"labels": [0] * 9},
        {"labels": [10] * 10},
        {"labels": "0123456789"},
    ],
    indirect=True,
)
def test_pickles_of_another_content(pickles: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^data_root: [^\n]*cifar-10-batches-py is damaged [^\n]*; delete it"
    ):
        cifar10.load(pickles)


def test_a_download_only_where_absent(pickles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(CIFAR10, "download", lambda self: calls.append(self.root))
    cifar10.prepare(pickles)
    assert calls == []
    with pytest.raises(ValueError, match="download failed"):
        cifar10.prepare(pickles / "empty")
    assert calls == [pickles / "empty"]


def test_missing_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    for step in (cifar10.prepare, cifar10.load):
        with pytest.raises(ValueError, match=r"^data_root: no CIFAR-10 in [^\n]*$") as error:
            step(tmp_path)
        for part in (str(tmp_path), "the data set mnist5k", "data_root or QAT_DATA"):
            assert part in str(error.value)


def test_an_image_folder_comes_first(pickles: Path, write_folder) -> None:
    counts = dict.fromkeys(cifar10.CLASSES, 1)
    written = write_folder(pickles / "cifar10", counts, counts, (3, 32, 32))
    cifar10.prepare(pickles)
    data = cifar10.load(pickles)
    assert torch.equal(
        data.test_images, torch.stack([written[f"test/{n}/0000.png"] for n in cifar10.CLASSES])
    )
    assert data.train_labels.tolist() == list(range(10))


@pytest.mark.parametrize("wrong", ["classes", "shape"])
def test_another_image_folder_is_refused(tmp_path: Path, write_folder, wrong: str) -> None:
    counts = dict.fromkeys(("cat", "dog") if wrong == "classes" else cifar10.CLASSES, 1)
    write_folder(tmp_path / "cifar10", counts, counts, (3, 32, 32) if wrong == "classes" else (1, 32, 32))
    with pytest.raises(ValueError, match=r"^data_root: [^\n]*is not CIFAR-10: [^\n]*--data folder[^\n]*$"):
        cifar10.load(tmp_path)


@pytest.mark.slow
def test_the_whole_image_folder() -> None:
    root = Path(os.environ.get("QAT_DATA", "data"))
    if cifar10.image_folder(root) is None:
        pytest.skip("needs cifar10/train and cifar10/test in the folder that QAT_DATA names")
    data = cifar10.load(root)
    assert torch.equal(data.train_labels.bincount(), torch.full((10,), 5000))
    assert torch.equal(data.test_labels.bincount(), torch.full((10,), 1000))
    mean = data.train_images.double().mean((0, 2, 3)) / 255
    assert torch.allclose(mean, torch.tensor([0.4914, 0.4822, 0.4465]).double(), atol=1e-3)
