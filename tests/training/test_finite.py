"""The layer that saw a NaN or an infinity first is named, in one line, and nothing moves."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat.cli.train import main
from qat.layers import Quantization
from qat.training import Classifier
from qat.training.finite import first_not_finite


class Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.log()


class Ratio(nn.Module):
    """No child makes the NaN: the function between them does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()
        self.after = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        return self.after((y - y) / (y - y))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nn.Sequential(nn.BatchNorm1d(2), Log(), nn.Linear(2, 2)), "1 (Log) puts it out first"),
        (nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.ReLU(), Log())), "1.1 (Log) puts it out first"),
        (nn.Sequential(nn.BatchNorm1d(2)), "the logits are finite, so the loss itself makes it"),
        (nn.Sequential(Ratio()), "0.after (Identity) puts it out first"),
    ],
)
def test_the_first_layer(model: nn.Module, expected: str) -> None:
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert first_not_finite(model, torch.rand(4, 2, generator=torch.Generator().manual_seed(0))) == expected
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [module for module in model.modules() if module._forward_hooks] == []


def test_what_was_not_finite_before() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    images = torch.tensor([[1.0, torch.nan]])
    assert first_not_finite(model, images) == "the images of the batch hold it already"
    model[0].running_mean[0] = torch.inf  # not read in training mode, and as bad after any NaN
    assert "loss itself" in first_not_finite(model, torch.rand(3, 2))
    assert first_not_finite(model.eval(), torch.ones(2, 2)) == "0 (BatchNorm1d) puts it out first"
    model[1].bias.data[0] = torch.nan
    expected = "1.bias holds it already, so an earlier step went too far: lower the learning rate"
    assert first_not_finite(model, torch.ones(2, 2)) == expected


@pytest.mark.parametrize("checkpoint", [[], ["blocks.*"]])
def test_the_training_step_says_so(checkpoint: list[str]) -> None:
    model = Classifier(options={"width": 4}, quantization=Quantization(), checkpoint=checkpoint)
    batch = torch.rand(2, 1, 28, 28), torch.tensor([0, 1])

    def broken(*_: Any) -> Tensor:
        return torch.full((2, 8, 14, 14), torch.nan)

    model.model.blocks[1].bn.register_forward_hook(broken)
    message = r"^the loss is nan in epoch 0, batch 5: blocks\.1\.bn \(BatchNorm2d\) puts it out first$"
    with pytest.raises(FloatingPointError, match=message):
        model.training_step(batch, 5)


def test_the_command_line_says_it_in_one_line(
    short: list[str], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--trainer.default_root_dir", str(tmp_path), "--trainer.enable_checkpointing", "false"]
    # On a float network: a quantizer would limit what an absurd step makes.
    bits = [x for b in ("weight", "activation", "first_last", "input") for x in (f"{b}_bits", "32")]
    options = [f"--model.quantization.{x}" if x != "32" else x for x in bits]
    with pytest.raises(SystemExit) as stop:
        main(["fit", *short, *root, *options, "--model.optimizer", "sgd", "--model.learning_rate", "1e38"])
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: the loss is ")
    # Which of the two overflows first depends on the order in which a convolution adds.
    assert re.search(r"blocks\.0\.(conv \(Conv2d|bn \(BatchNorm2d)\) puts it out first", err)
