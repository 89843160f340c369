"""The number of the epoch decides the phase, in resumed and in checkpointed runs too."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from qat.layers import Quantization
from qat.quantizers import Quantizer, Scale
from qat.training import Classifier
from qat.training.phases import Phases

LEARNED = Quantization(2, 2, 4, 4, weight_scale="learned", activation_scale="learned")
PLAN = {"float_epochs": 1, "freeze_epoch": 2, "freeze_batchnorm_epoch": 3}


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(12, 1, 28, 28, generator=generator)
    # A loader without a generator would draw from the global one.
    return DataLoader(TensorDataset(images, torch.arange(12) % 10), 4, generator=generator)


def is_quantized(model: nn.Module) -> bool:
    return all(module.enabled for module in model.modules() if isinstance(module, Quantizer))


class Watch(Callback):
    """Records after each epoch the phase, the scales and the statistics of BatchNorm."""

    def __init__(self) -> None:
        self.phases: list[tuple[bool, bool, bool]] = []
        self.states: list[list[dict[str, torch.Tensor]]] = []
        self.validated: list[bool] = []

    def on_validation_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.validated.append(is_quantized(pl_module))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        norms = [m for m in pl_module.modules() if isinstance(m, nn.BatchNorm2d)]
        scales = [m for m in pl_module.modules() if isinstance(m, Scale)]
        # This runs before the phase changes, so it sees that of the epoch before; the first epoch has none.
        if trainer.current_epoch > 0:
            frozen = all(bool(scale.frozen) for scale in scales)
            self.phases.append((is_quantized(pl_module), frozen, not any(n.training for n in norms)))
        self.states.append(
            [
                {f"{i}": scale.value.detach().clone() for i, scale in enumerate(scales)},
                {f"{i}{k}": v.clone() for i, norm in enumerate(norms) for k, v in norm.named_buffers()},
            ]
        )

    on_fit_end = on_train_epoch_start


class Save(Callback):
    """Writes a .ckpt file at the end of each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        trainer.save_checkpoint(self.folder / f"epoch={trainer.current_epoch}.ckpt")


def fitted(
    epochs: int, ckpt: Path | None = None, callbacks: Sequence[Callback] = (), **arguments: Any
) -> tuple[Classifier, Trainer, Watch]:
    torch.manual_seed(3)
    options = {"width": 4, "dropout": 0.3}
    model = Classifier(options=options, learning_rate=0.02, **{"quantization": LEARNED, **arguments})
    watch = Watch()
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(
        accelerator="cpu",
        enable_checkpointing=False,
        max_epochs=epochs,
        callbacks=[watch, *callbacks],
        **quiet,
    )
    trainer.fit(model, loader(), loader(), ckpt_path=ckpt, weights_only=True)
    return model, trainer, watch


def test_each_epoch_is_in_its_phase() -> None:
    _, _, watch = fitted(4, **PLAN)
    assert watch.phases == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, True),
    ]
    # One batch of two in the sanity check, three in each epoch: each in the phase of the epoch just trained.
    assert watch.validated == [False] * 2 + [False] * 3 + [True] * 9
    scales, norms = zip(*watch.states, strict=True)

    def still(pair: tuple[dict[str, torch.Tensor], ...]) -> bool:
        return all(torch.equal(pair[0][key], pair[1][key]) for key in pair[0])

    # Between the starts of epochs 0 and 1 nothing observes; from epoch 2 on, not even momentum moves a scale.
    assert [still(scales[i : i + 2]) for i in range(4)] == [True, False, True, True]
    assert [still(norms[i : i + 2]) for i in range(4)] == [False, False, False, True]


def test_a_float_phase_equals_the_float_run() -> None:
    first, _, _ = fitted(1, float_epochs=1)
    other, _, _ = fitted(1, quantization=Quantization(32, 32, 32, 32))
    expected = other.state_dict()
    assert {key for key in expected if not torch.equal(first.state_dict()[key], expected[key])} == set()


@pytest.mark.parametrize("quantization", [LEARNED, Quantization()])
def test_resumed_in_the_right_phase(quantization: Quantization, tmp_path: Path) -> None:
    def each(folder: str) -> list[Callback]:
        return [Save(tmp_path / folder)]

    whole, _, _ = fitted(4, None, each("whole"), quantization=quantization, **PLAN)
    expected = whole.state_dict()
    for done in range(3):
        path = tmp_path / "whole" / f"epoch={done}.ckpt"
        resumed, trainer, _ = fitted(4, path, each(f"from_{done}"), quantization=quantization, **PLAN)
        assert trainer.global_step == 12
        found = resumed.state_dict()
        assert [key for key, value in expected.items() if not torch.equal(value, found[key])] == []


def test_checkpointed_blocks_have_the_same_phases() -> None:
    plain, _, _ = fitted(4, **PLAN)
    checkpointed, _, _ = fitted(4, checkpoint=["blocks.*"], **PLAN)
    found = checkpointed.state_dict()
    assert [key for key, value in plain.state_dict().items() if not torch.equal(value, found[key])] == []


@pytest.mark.parametrize(
    ("epochs", "quantized", "frozen"), [(1, False, False), (2, True, False), (3, True, True)]
)
def test_a_loaded_file_is_in_the_phase_it_was_written_in(
    epochs: int, quantized: bool, frozen: bool, tmp_path: Path
) -> None:
    model, trainer, _ = fitted(epochs, **PLAN)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    again = Classifier.load_from_checkpoint(tmp_path / "x.ckpt", weights_only=True)
    quantizers = [module for module in again.modules() if isinstance(module, Quantizer)]
    assert {q.enabled for q in quantizers} == {quantized}
    assert {bool(q.scale.frozen) for q in quantizers} == {frozen}
    images = torch.rand(4, 1, 28, 28)
    assert torch.equal(again.eval()(images), model.eval()(images))
    untouched = {key: value.clone() for key, value in again.state_dict().items()}
    trainer.test(again, loader(), verbose=False)
    assert {q.enabled for q in quantizers} == {quantized}
    assert all(torch.equal(value, untouched[key]) for key, value in again.state_dict().items())


def test_a_classifier_has_the_phases_of_its_options() -> None:
    (none,) = Classifier(options={"width": 4}).configure_callbacks()
    assert isinstance(none, Phases)  # it refuses to go on where a run with a schedule of bits stopped
    assert (none.float_epochs, none.freeze_epoch, none.freeze_batchnorm_epoch) == (0, None, None)
    (phases,) = Classifier(options={"width": 4}, freeze_epoch=3).configure_callbacks()
    assert isinstance(phases, Phases)
    assert (phases.float_epochs, phases.freeze_epoch, phases.freeze_batchnorm_epoch) == (0, 3, None)


def test_a_strategy_that_waits_for_gradients_of_frozen_scales() -> None:
    model = Classifier(options={"width": 4}, quantization=LEARNED, freeze_epoch=1)
    (phases,) = model.configure_callbacks()
    options = {"accelerator": "cpu", "devices": 1, "logger": False, "max_epochs": 2}
    with pytest.raises(ValueError, match=r"need trainer\.strategy ddp_find_unused_parameters_true"):
        phases.setup(Trainer(strategy="ddp", **options), model, "fit")
    phases.setup(Trainer(strategy="ddp_find_unused_parameters_true", **options), model, "fit")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"float_epochs": -1}, r"float_epochs must be an integer >= 0, got -1"),
        ({"float_epochs": None}, r"float_epochs must be an integer >= 0, got None"),
        ({"freeze_epoch": 1.5}, r"freeze_epoch must be an integer >= 0, got 1\.5"),
        ({"freeze_batchnorm_epoch": -2}, r"freeze_batchnorm_epoch must be an integer >= 0, got -2"),
        ({"freeze_epoch": 0}, r"freeze_epoch must be above float_epochs \(0\), got 0"),
        ({"float_epochs": 3, "freeze_epoch": 3}, r"freeze_epoch must be above float_epochs \(3\), got 3"),
    ],
)
def test_wrong_numbers(arguments: dict[str, Any], message: str) -> None:
    for build in (Phases, Classifier):
        with pytest.raises(ValueError, match=message):
            build(**arguments)
