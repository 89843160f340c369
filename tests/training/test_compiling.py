"""What is compiled and when, and that a compiled run equals the eager one."""

from functools import partial
from typing import Any

import pytest
import torch
from lightning import Trainer
from torch.utils.data import DataLoader, TensorDataset

from qat import Quantization
from qat.quantizers import Quantizer
from qat.training.classifier import Classifier
from qat.training.compiling import LONG
from qat.training.health import Health
from qat.training.result import Recorder

SMALL = {"input_shape": (1, 16, 16), "options": {"width": 4, "dropout": 0.2}}


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile to torch's own operations, which are equal to the last bit."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))


def loader(count: int, batch_size: int = 4) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(count, 1, 16, 16, generator=generator)
    return DataLoader(TensorDataset(images, torch.arange(count) % 10), batch_size)


def trained(classifier: Classifier) -> tuple[dict[str, torch.Tensor], list[float]]:
    recorder = Recorder()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        callbacks=[recorder, Health(every=2, warns=False)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(classifier, loader(18), loader(8))  # the last batch has 2
    return classifier.model.state_dict(), recorder.step_losses


@pytest.mark.parametrize("checkpoint", [[], ["blocks.*"]])
def test_a_compiled_run_is_the_eager_one_and_compiles_once(checkpoint: list[str]) -> None:
    results = []
    for compile_ in (False, True):
        torch.manual_seed(3)
        results.append(trained(Classifier(**SMALL, checkpoint=checkpoint, compile=compile_)))
    (eager, losses), (graph, others) = results
    # In a graph convolutions may see other strides, and then add in another order.
    assert losses == pytest.approx(others, rel=1e-3)
    counters = [name for name in eager if "batches" in name]
    assert any("scale.batches" in name for name in counters)
    assert all(torch.equal(eager[name], graph[name]) for name in counters)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_pack_and_compile_are_refused_together() -> None:
    with pytest.raises(ValueError, match="pack must be false with compile true"):
        Classifier(**SMALL, pack=True, compile=True)


@pytest.mark.parametrize(
    ("bits", "images", "environment", "expected"),
    [(4, 18, None, 0), (4, 18, "1", 1), (32, 18, "1", 0), (4, int(LONG / 256 / 2) + 4, None, 1)],
)
def test_kernels_are_compiled_for_long_runs_of_quantized_networks(
    bits: int, images: int, environment: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[torch.device] = []
    monkeypatch.setattr(
        "qat.training.compiling.compile_kernels", lambda network, device, track: calls.append(device)
    )
    if environment:
        monkeypatch.setenv("QAT_COMPILE", environment)
    classifier = Classifier(**SMALL, quantization=Quantization(bits, bits, bits, bits))
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        max_steps=-1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )

    class EnoughError(Exception):
        pass

    def stop(*_: object) -> None:
        raise EnoughError

    monkeypatch.setattr(classifier, "on_train_epoch_start", stop)
    # The data set has many elements but stores one image.
    data = TensorDataset(
        torch.zeros(1, 1, 16, 16).expand(images, -1, -1, -1), torch.zeros(1).long().expand(images)
    )
    with pytest.raises(EnoughError):
        trainer.fit(classifier, DataLoader(data, 4), DataLoader(data, 4))
    assert len(calls) == expected


def test_a_short_run_is_eager_whatever_ran_before() -> None:
    torch.manual_seed(3)
    classifier = Classifier(**SMALL)
    quantizers = [module for module in classifier.modules() if isinstance(module, Quantizer)]
    for quantizer in quantizers:
        quantizer.compiled_on = "cpu"
    trained(classifier)
    assert {quantizer.compiled_on for quantizer in quantizers} == {None}
