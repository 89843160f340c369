"""Averages of weights, by torch and by Lightning: a run is trained, saved, loaded, resumed and exported."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging, StochasticWeightAveraging, WeightAveraging
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

from qat.export import export_onnx, verify
from qat.layers import Quantization, quantize, remeasure
from qat.models import SmallCNN
from qat.quantizers import Quantizer
from qat.training import Classifier
from qat.training.ckpt import load_state, read_ckpt

# Lightning's callback says that its own schedule takes the place of the run's, which goes by steps.
pytestmark = pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")

IMAGES = torch.rand(12, 1, 28, 28, generator=torch.Generator().manual_seed(1))
CALLBACKS: dict[str, Callable[[], Callback]] = {
    "EMA, 0.9": lambda: EMAWeightAveraging(decay=0.9),
    "EMA, 0.999": lambda: EMAWeightAveraging(decay=0.999),
    "EMA without buffers": lambda: EMAWeightAveraging(decay=0.9, use_buffers=False),
    "mean": WeightAveraging,
    "SWA": lambda: StochasticWeightAveraging(0.01, swa_epoch_start=1),
}
CONFIGS = {
    "observed": Quantization(),
    "learned": Quantization(2, 2, weight_scale="learned", activation_scale="learned"),
    "asymmetric": Quantization(asymmetric=True, power_of_two=True),
}
AVERAGES: dict[str, dict[str, Any]] = {
    "mean": {},
    "EMA": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
    "EMA, one by one": {"avg_fn": get_ema_avg_fn(0.999)},
}
each_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(IMAGES, torch.arange(12) % 10), 4)


def fitted(
    average: Callback, folder: Path, epochs: int = 2, ckpt: Path | None = None, **arguments: Any
) -> tuple[Classifier, Trainer]:
    torch.manual_seed(3)
    model = Classifier(options={"width": 4}, **arguments)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=[average, Save(folder)],
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        **quiet,
    )
    trainer.fit(model, loader(), loader(), ckpt_path=ckpt, weights_only=True)
    return model, trainer


class Save(Callback):
    """Writes a .ckpt file at the end of each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        trainer.save_checkpoint(self.folder / f"epoch={trainer.current_epoch}.ckpt")


@pytest.mark.parametrize(
    ("name", "config"),
    [*((name, "observed") for name in CALLBACKS), ("EMA, 0.999", "learned"), ("EMA, 0.999", "asymmetric")],
)
def test_a_run_of_lightning_is_loaded_and_resumed(name: str, config: str, tmp_path: Path) -> None:
    quantization = CONFIGS[config]
    model, _ = fitted(CALLBACKS[name](), tmp_path, quantization=quantization)
    last = sorted(tmp_path.glob("*.ckpt"))[-1]
    loaded = Classifier.load_from_checkpoint(last, weights_only=True)
    for x in (*loaded.parameters(), *loaded.buffers()):
        assert not x.is_floating_point() or x.isfinite().all()
    if "SWA" not in name:  # which the files of Lightning's other callback do not hold before the end
        ours, theirs = model.state_dict(), loaded.state_dict()
        assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []
    resumed, other = fitted(
        CALLBACKS[name](), tmp_path / "resumed", 3, tmp_path / "epoch=0.ckpt", quantization=quantization
    )
    assert other.global_step > 3
    for classifier in (model, loaded, resumed):
        remeasure(classifier.model, loader())
        assert classifier.eval()(IMAGES).isfinite().all()


@pytest.mark.parametrize("name", ["EMA, 0.9", pytest.param("SWA", marks=pytest.mark.slow)])
def test_a_run_of_lightning_is_exported(name: str, tmp_path: Path) -> None:
    fitted(CALLBACKS[name](), tmp_path, 1)
    model = Classifier.load_from_checkpoint(tmp_path / "epoch=0.ckpt", weights_only=True).model
    remeasure(model, loader())
    path = export_onnx(model.eval(), IMAGES[:2], tmp_path / "model.onnx")
    assert verify(model, path, IMAGES).unexplained == []


def test_a_resumed_run_with_averages_is_the_uninterrupted_one(tmp_path: Path) -> None:
    whole, _ = fitted(CALLBACKS["EMA, 0.9"](), tmp_path, 2)
    again, _ = fitted(CALLBACKS["EMA, 0.9"](), tmp_path / "again", 2, tmp_path / "epoch=0.ckpt")
    ours, theirs = whole.state_dict(), again.state_dict()
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []


def test_flags_in_the_file_are_those_of_the_run(tmp_path: Path) -> None:
    """The callback's copy is made before the first epoch, and has the flags of that moment."""
    plan = {"float_epochs": 1, "freeze_epoch": 2}
    fitted(CALLBACKS["EMA, 0.9"](), tmp_path, 3, **plan)
    found = []
    for epoch in range(3):
        loaded = Classifier.load_from_checkpoint(tmp_path / f"epoch={epoch}.ckpt", weights_only=True)
        quantizers = [part for part in loaded.modules() if isinstance(part, Quantizer)]
        found.append(({q.enabled for q in quantizers}, {q.scale.frozen for q in quantizers}))
    assert found == [({False}, {False}), ({True}, {False}), ({True}, {True})]


def test_each_quantizer_keeps_its_own_flags_in_a_file(tmp_path: Path) -> None:
    model = Classifier(options={"width": 4})
    model.model.fc.weight_quantizer.enabled = False
    model.model.fc.input_quantizer.freeze() if isinstance(model.model.fc.input_quantizer, Quantizer) else None
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(accelerator="cpu", max_epochs=1, enable_checkpointing=False, **quiet)
    trainer.fit(model, loader(), loader())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    loaded = Classifier.load_from_checkpoint(tmp_path / "x.ckpt", weights_only=True)
    other = Classifier(options={"width": 4})
    load_state(read_ckpt("ckpt_path", tmp_path / "x.ckpt"), tmp_path / "x.ckpt", other)
    expected = [(q.enabled, q.scale.frozen) for q in model.modules() if isinstance(q, Quantizer)]
    assert sum(not enabled for enabled, _ in expected) == 1
    for twin in (loaded, other):
        assert [(q.enabled, q.scale.frozen) for q in twin.modules() if isinstance(q, Quantizer)] == expected
        assert torch.equal(twin.eval()(IMAGES), model.eval()(IMAGES))


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_every_verb_refuses_another_kind_of_scale_and_leaves_the_model(verb: str, tmp_path: Path) -> None:
    fitted(CALLBACKS["EMA, 0.9"](), tmp_path, 1, quantization=CONFIGS["learned"])
    observed = Classifier(options={"width": 4}, quantization=Quantization(2, 2))
    before = {key: value.clone() for key, value in observed.state_dict().items()}
    loaders = (loader(), loader()) if verb == "fit" else (loader(),)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(accelerator="cpu", max_epochs=2, enable_checkpointing=False, **quiet)
    with pytest.raises(
        ValueError, match=r"^model\.blocks\S+: the state to load has a scale of the kind LearnedScale"
    ):
        getattr(trainer, verb)(observed, *loaders, ckpt_path=tmp_path / "epoch=0.ckpt", weights_only=True)
    assert [key for key, value in observed.state_dict().items() if not torch.equal(value, before[key])] == []


@each_config
@pytest.mark.parametrize("use_buffers", [True, False])
@pytest.mark.parametrize("average", AVERAGES.values(), ids=AVERAGES)
def test_an_averaged_model_of_torch(
    average: dict[str, Any], use_buffers: bool, config: Quantization, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = quantize(SmallCNN(width=4), config, IMAGES)
    averaged = AveragedModel(model, use_buffers=use_buffers, **average)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        for batch in IMAGES.split(4):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            averaged.update_parameters(model)
    torch.save(averaged.state_dict(), tmp_path / "averaged.pt")
    again = AveragedModel(
        quantize(SmallCNN(width=4), config, torch.zeros(2, 1, 28, 28)), use_buffers=use_buffers
    )
    again.load_state_dict(torch.load(tmp_path / "averaged.pt", weights_only=True))
    assert torch.equal(averaged.eval()(IMAGES), again.eval()(IMAGES))
    again.update_parameters(model)  # goes on
    remeasure(averaged.module, loader())
    copied = copy.deepcopy(averaged)
    assert torch.equal(copied(IMAGES), averaged(IMAGES))


def test_weights_follow_the_average_and_activations_are_measured_anew() -> None:
    """Without a new measurement, the scale of a layer after averaged weights is far from its activations."""

    def net() -> nn.Sequential:
        return nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 2))

    torch.manual_seed(0)
    x = torch.rand(16, 8)
    model = quantize(net(), Quantization(), x)
    averaged = AveragedModel(model, use_buffers=True)
    start = model[0].weight.detach().clone()
    for sign in (1, -0.6):
        with torch.no_grad():
            model[0].weight.copy_(sign * start)
        model(x)
        averaged.update_parameters(model)
    first, quantizer = averaged.module[0], averaged.module[1].quantizer
    torch.testing.assert_close(first.weight, 0.2 * start)
    averaged.eval()
    scale = first.weight_quantizer.scale(first.weight).flatten()
    torch.testing.assert_close(scale, first.weight.abs().amax(1) / first.weight_quantizer.grid.high)
    remeasure(averaged, [x])
    hidden: list[Tensor] = []
    handle = averaged.module[0].register_forward_hook(lambda *args: hidden.append(args[2].relu()))
    averaged(x)
    handle.remove()
    torch.testing.assert_close(quantizer.scale.value, hidden[0].max() / quantizer.grid.high)
