import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning import LightningModule, Trainer
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DistributedSampler

from qat.data import ImageData
from qat.data.mnist import load_embedded
from qat.data.split import alternating_order

TRAINER = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "log_every_n_steps": 1,
}


def lightning(test: Callable[..., None]) -> Callable[..., None]:
    """Pass over two warnings of Lightning: a tip that is wrong for data in memory, and its own old import."""
    test = pytest.mark.filterwarnings("ignore:.*does not have many workers")(test)
    return pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")(test)


class Linear(LightningModule):
    """One linear layer that notes what it is fed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(784, 10)
        self.fed: list[tuple[int, str]] = []

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        self.fed.append((self.current_epoch, str(images.double().sum().item()) + str(labels.tolist())))
        return F.cross_entropy(self.layer(images.flatten(1)), labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        self.log("val_accuracy", (self.layer(batch[0].flatten(1)).argmax(1) == batch[1]).float().mean())

    def test_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        self.log("test_accuracy", (self.layer(batch[0].flatten(1)).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def epoch(data: ImageData, number: int = 0) -> tuple[Tensor, Tensor]:
    loader = data.train_dataloader()
    loader.sampler.set_epoch(number)
    images, labels = zip(*loader, strict=True)
    return torch.cat(images), torch.cat(labels)


def test_batches_are_the_bytes_of_the_split() -> None:
    raw = load_embedded(Path())
    data = ImageData(batch_size=96)
    val = list(data.val_dataloader())
    test = list(data.test_dataloader())
    train, _ = epoch(data)
    assert [len(labels) for _, labels in val] == [96] * 4 + [16]
    assert [len(labels) for _, labels in test] == [96] * 10 + [40]
    assert len(train) == 37 * 96  # of 3,600: the short batch is left out
    images = torch.cat([images for images, _ in test])
    order = alternating_order(raw.test_labels)
    assert torch.equal(images, raw.test_images[order] / 255)
    assert torch.equal(torch.cat([labels for _, labels in test]), raw.test_labels[order])
    assert images.dtype == torch.float32
    kept = {image.numpy().tobytes() for image in raw.train_images.float() / 255}
    seen = {image.numpy().tobytes() for image in torch.cat([train, *[images for images, _ in val]])}
    assert len(seen) == 37 * 96 + 400
    assert seen < kept


def test_validation_is_stratified_fixed_and_apart() -> None:
    first, second = ImageData(seed=0), ImageData(seed=5, batch_size=50)
    torch.manual_seed(9)
    one = torch.cat([images for images, _ in first.val_dataloader()])
    two = torch.cat([images for images, _ in second.val_dataloader()])
    assert torch.equal(one, two)
    assert torch.equal(
        torch.cat([labels for _, labels in first.val_dataloader()]).bincount(), torch.full((10,), 40)
    )
    train = {image.numpy().tobytes() for image in epoch(ImageData(batch_size=1))[0]}
    assert len(train) == 3600
    assert not train & {image.numpy().tobytes() for image in one}


def test_val_fraction() -> None:
    assert sum(len(labels) for _, labels in ImageData(val_fraction=0.25).val_dataloader()) == 1000


def test_order_is_of_seed_and_epoch() -> None:
    labels = {
        (seed, number): tuple(epoch(ImageData(seed=seed), number)[1]) for seed in (0, 1) for number in (0, 1)
    }
    assert len(set(labels.values())) == 4
    assert torch.equal(epoch(ImageData(seed=1), 1)[0], epoch(ImageData(seed=1), 1)[0])


def test_a_set_smaller_than_a_batch_is_one_batch() -> None:
    data = ImageData(batch_size=5000)
    assert [len(labels) for _, labels in data.train_dataloader()] == [3600]
    assert [len(labels) for _, labels in ImageData(batch_size=3600).train_dataloader()] == [3600]


def test_only_training_is_augmented_and_digits_only_shifted() -> None:
    plain, augmented = ImageData(), ImageData(augment=True)
    for name in ("val_dataloader", "test_dataloader"):
        for (a, _), (b, _) in zip(getattr(plain, name)(), getattr(augmented, name)(), strict=True):
            assert torch.equal(a, b)
    (a, labels), (b, same) = epoch(plain), epoch(augmented)
    assert torch.equal(labels, same)
    assert not torch.equal(a, b)
    unmoved = (a == b).flatten(1).all(1).float().mean()
    assert abs(float(unmoved) - 1 / 81) < 0.01


def test_augmentation_is_of_seed_and_epoch() -> None:
    assert torch.equal(
        epoch(ImageData(augment=True), 2)[0], epoch(ImageData(augment=True, batch_size=64), 2)[0]
    )
    data = ImageData(augment=True)
    first, again = epoch(data, 0)[0], (epoch(data, 1), epoch(data, 0))[1][0]
    assert torch.equal(first, again)


def test_colour_images_are_mirrored_half_the_time(tmp_path: Path) -> None:
    brighter_to_the_right = np.tile(np.arange(0, 240, 20, dtype=np.uint8)[None, :, None], (12, 1, 3))
    for file in [f"train/a/{i}.png" for i in range(400)] + ["test/a/0.png"]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(brighter_to_the_right).save(tmp_path / file)
    images, _ = epoch(ImageData("folder", str(tmp_path), augment=True, batch_size=360))
    # Columns 5 and 6 come from the image, not from its border, whatever the shift.
    mirrored = images[:, 0, 5, 5] > images[:, 0, 5, 6]
    assert len(mirrored) == 360
    assert abs(int(mirrored.sum()) - 180) < 45


def test_no_global_generator_moves() -> None:
    data = ImageData(augment=True)
    data.setup()
    before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader()):
        for _ in loader:
            pass
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert str(np.random.get_state()) == before[2]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("batch_size", 0),
        ("batch_size", -3),
        *(("batch_size", value) for value in (None, True, 1.5, math.nan, math.inf, "8", 10**20, [8])),
        ("seed", -1),
        ("seed", 2**32),
        *(("seed", value) for value in (None, True, 0.5, math.nan, "1")),
        ("val_fraction", 0.0),
        ("val_fraction", 1.0),
        *(("val_fraction", value) for value in (math.nan, math.inf, None, True, "0.1")),
        *(("augment", value) for value in (None, 1, "yes")),
        *(("shift", value) for value in (-1, 17, 1.5, True, None)),
        ("data_root", 3),
    ],
)
def test_bad_arguments(argument: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{argument} must [^\n]*got {re.escape(repr(value))}; [^\n]*$"):
        ImageData(**{argument: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"augment": True, "flip": "always"}, "unknown flip 'always'; choose from: random, alternating"),
        ({"flip": "alternating"}, "flip must be left out without augment"),
        ({"shift": 2}, "shift must be left out without augment"),
    ],
)
def test_options_of_augmentation(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageData(**options)


def test_nothing_to_validate_with(tmp_path: Path, write_folder) -> None:
    write_folder(tmp_path, {"a": 1, "b": 1}, {"a": 1, "b": 1})
    with pytest.raises(ValueError, match=r"^data_root: validation needs 2 training images of a class[^\n]*$"):
        ImageData("folder", str(tmp_path)).setup()


def test_errors_of_the_data_reach_the_caller(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set data_root or QAT_DATA"):
        ImageData("folder", str(tmp_path)).prepare_data()


@lightning
def test_lightning_fits_and_tests() -> None:
    torch.manual_seed(0)
    trainer = Trainer(max_epochs=1, enable_checkpointing=False, **TRAINER)
    model, data = Linear(), ImageData()
    trainer.fit(model, datamodule=data)
    assert trainer.global_step == 28
    assert isinstance(trainer.train_dataloader.sampler, DistributedSampler)
    assert trainer.callback_metrics["val_accuracy"] > 0.6
    assert trainer.test(model, datamodule=data, verbose=False)[0]["test_accuracy"] > 0.6


@lightning
def test_a_resumed_run_sees_the_same_batches(tmp_path: Path) -> None:
    def fit(epochs: int, resume: Path | None) -> list[tuple[int, str]]:
        torch.manual_seed(0)
        trainer = Trainer(max_epochs=epochs, num_sanity_val_steps=0, enable_checkpointing=False, **TRAINER)
        model = Linear()
        trainer.fit(model, datamodule=ImageData(augment=True, batch_size=512), ckpt_path=resume)
        trainer.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return model.fed

    whole = fit(4, None)
    first = fit(2, None)
    second = fit(3, tmp_path / "2.ckpt")
    assert [number for number, _ in whole] == [0] * 7 + [1] * 7 + [2] * 7 + [3] * 7
    assert first + second == whole[:21]
    assert len({fed for _, fed in whole}) == 28


@pytest.mark.parametrize("count", [10, 20, 50])
def test_few_batches_hold_all_classes(count: int) -> None:
    data = ImageData(batch_size=count)
    for loader in (data.val_dataloader(), data.test_dataloader()):
        for _, labels in loader:
            assert torch.equal(labels.bincount(minlength=10), torch.full((10,), len(labels) // 10))


def test_folders_alternate_too(tmp_path: Path, write_folder) -> None:
    write_folder(tmp_path, {"a": 20, "b": 20}, {"a": 8, "b": 8}, (1, 6, 5))
    data = ImageData("folder", str(tmp_path), batch_size=2, val_fraction=0.4)
    for loader in (data.val_dataloader(), data.test_dataloader()):
        assert all(sorted(labels.tolist()) == [0, 1] for _, labels in loader)


@lightning
@pytest.mark.parametrize("augment", [False, True])
def test_one_batch_that_is_overfitted_holds_all_classes(augment: bool) -> None:
    trainer = Trainer(max_epochs=2, overfit_batches=1, enable_checkpointing=False, **TRAINER)
    model = Linear()
    trainer.fit(model, datamodule=ImageData(batch_size=20, augment=augment))
    assert len(model.fed) == 2
    assert model.fed[0][1] == model.fed[1][1]
    labels = model.fed[0][1].partition("[")[2].rstrip("]").split(", ")
    assert sorted(labels) == sorted("0123456789" * 2)


def test_classes_have_names(tmp_path: Path, write_folder) -> None:
    assert ImageData("mnist5k").class_names == tuple("0123456789")
    assert ImageData("mnist").class_names == tuple("0123456789")
    assert ImageData("cifar10").class_names[3] == "cat"
    write_folder(tmp_path, {"10": 2, "9": 2}, {"10": 1, "9": 1}, (1, 6, 5))
    assert ImageData("folder", str(tmp_path)).class_names == ("9", "10")
