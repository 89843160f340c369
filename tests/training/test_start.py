"""A run starts from all weights of a float run; the command line says so in one line."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from torch.utils.data import DataLoader, TensorDataset

from qat.layers import Quantization, QuantLayer
from qat.quantizers import Quantizer
from qat.training import Classifier

FLOAT = Quantization(32, 32, 32, 32)
LEARNED = Quantization(2, 2, weight_scale="learned", activation_scale="learned")


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(torch.rand(8, 1, 28, 28, generator=generator), torch.arange(8)), 4)


def trainer(epochs: int = 1) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return Trainer(accelerator="cpu", enable_checkpointing=False, max_epochs=epochs, **quiet)


def written(path: Path, quantization: Quantization = FLOAT, epochs: int = 1, **arguments: Any) -> str:
    torch.manual_seed(7)
    run = trainer(epochs)
    run.fit(
        Classifier(**{"options": {"width": 4}} | arguments, quantization=quantization), loader(), loader()
    )
    run.save_checkpoint(path)
    return str(path)


@pytest.mark.parametrize("quantization", [Quantization(), LEARNED, Quantization(power_of_two=True), FLOAT])
def test_all_but_the_quantizers_comes_from_the_file(
    quantization: Quantization, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "float.ckpt")
    loaded = torch.load(path, weights_only=True)["state_dict"]
    caplog.set_level(logging.INFO, "qat")
    caplog.clear()
    model = Classifier(options={"width": 4}, quantization=quantization, start=path)
    model.load_start()
    state = model.state_dict()
    new = len(state) - len(loaded)
    line = f"loaded all {len(loaded)} entries of the network from {path}; {new} of quantizers are new"
    assert caplog.messages == [f"start: {line}"]
    assert [key for key, value in loaded.items() if not torch.equal(state[key], value)] == []
    assert (new == 0) == (quantization is FLOAT)
    for module in model.modules():
        if isinstance(module, QuantLayer):
            scale = module.weight_quantizer.scale
            stored = scale.value.clone()
            scale.initialize(module.weight)
            assert torch.equal(scale.value, stored)
    model.load_start()  # the second call does nothing
    assert len(caplog.messages) == 1


def test_the_first_batch_sets_the_scales_and_the_sanity_check_does_not(tmp_path: Path) -> None:
    path = written(tmp_path / "float.ckpt")
    for start in (path, None):
        model = Classifier(options={"width": 4}, quantization=LEARNED, start=start)
        counts: list[set[int]] = []

        def count(*_: Any, model: Classifier = model, counts: list[set[int]] = counts) -> None:
            quantizers = [m for m in model.modules() if isinstance(m, Quantizer)]
            counts.append({int(q.scale.batches.max()) for q in quantizers})

        model.on_validation_end = model.on_train_batch_end = count
        before = {n: p.detach().clone() for n, p in model.named_parameters() if ".scale." in n}
        run = trainer()
        run.fit(model, loader(), loader())
        assert counts == [{0}, {1}, {2}, {2}]  # after the sanity check, two batches, the validation
        after = {n: p for n, p in model.named_parameters() if ".scale." in n}
        assert [n for n in before if "weight" not in n and torch.equal(before[n], after[n])] == []


def test_a_resumed_run_does_not_read_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "qat")
    start = written(tmp_path / "float.ckpt")
    ours = written(tmp_path / "ours.ckpt", Quantization(), start=start)
    assert caplog.text.count("start: ") == 1
    caplog.clear()
    Path(start).unlink()
    model = Classifier(options={"width": 4}, start=start)
    trainer(1).fit(model, loader(), loader(), ckpt_path=ours, weights_only=True)
    again = Classifier.load_from_checkpoint(ours, weights_only=True)
    trainer(1).fit(again, loader(), loader())
    assert "start: " not in caplog.text


def test_it_is_loaded_before_callbacks_read_the_weights(tmp_path: Path) -> None:
    start = written(tmp_path / "float.ckpt")
    weight = torch.load(start, weights_only=True)["state_dict"]["model.fc.weight"]
    seen: list[bool] = []

    class Look(Callback):
        def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
            seen.append(torch.equal(pl_module.model.fc.weight, weight))

    run = trainer()
    run.callbacks.append(Look())
    run.fit(Classifier(options={"width": 4}, start=start), loader(), loader())
    assert seen == [True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"options": {"width": 5}},
            r"blocks\.0\.conv\.weight has shape \(5, 1, 3, 3\) in it, \(4, 1, 3, 3\) here",
        ),
        ({"name": "lenet", "options": {}}, r"model\.\S+ has shape none in it, "),
        (
            {"quantization": Quantization()},
            r"model\.\S+quantizer\S+ has shape \(.*\) in it, none here; give one of a float run",
        ),
    ],
)
def test_another_network_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "other.ckpt", **change)
    with pytest.raises(ValueError, match=rf"^start must be a float \.ckpt file .*{message}"):
        Classifier(options={"width": 4}, start=path).load_start()


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"start must be a \.ckpt file, but there is none at"):
        Classifier(start=str(tmp_path / "none.ckpt")).load_start()
    (tmp_path / "text.ckpt").write_text("text")
    with pytest.raises(ValueError, match=r"start must be a \.ckpt file, but .* is not one"):
        Classifier(start=str(tmp_path / "text.ckpt")).load_start()
