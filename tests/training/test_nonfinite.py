"""The error names the first layer whose output is NaN or infinite, and finding it changes no state."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat.layers import Quantization
from qat.training import Classifier
from qat.training.nonfinite import locate_nonfinite


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
        (nn.Sequential(nn.BatchNorm1d(2), Log(), nn.Linear(2, 2)), "first seen in the output of 1 (Log)"),
        (
            nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.ReLU(), Log())),
            "first seen in the output of 1.1 (Log)",
        ),
        (nn.Sequential(nn.BatchNorm1d(2)), "the logits are finite, so the loss function itself is the cause"),
        (nn.Sequential(Ratio()), "first seen in the output of 0.after (Identity)"),
    ],
)
def test_the_first_layer(model: nn.Module, expected: str) -> None:
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert locate_nonfinite(model, torch.rand(4, 2, generator=torch.Generator().manual_seed(0))) == expected
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [module for module in model.modules() if module._forward_hooks] == []


def test_images_and_parameters_that_are_not_finite() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    images = torch.tensor([[1.0, torch.nan]])
    assert locate_nonfinite(model, images) == "the images of the batch are not finite"
    model[0].running_mean[0] = torch.inf  # training mode does not read it
    assert "loss function itself" in locate_nonfinite(model, torch.rand(3, 2))
    assert locate_nonfinite(model.eval(), torch.ones(2, 2)) == "first seen in the output of 0 (BatchNorm1d)"
    model[1].bias.data[0] = torch.nan
    expected = "1.bias is not finite, because an earlier step was too large: lower the learning rate"
    assert locate_nonfinite(model, torch.ones(2, 2)) == expected


@pytest.mark.parametrize("checkpoint", [[], ["blocks.*"]])
def test_the_training_step_names_the_layer(checkpoint: list[str]) -> None:
    model = Classifier(options={"width": 4}, quantization=Quantization(), checkpoint=checkpoint)
    batch = torch.rand(2, 1, 28, 28), torch.tensor([0, 1])

    def broken(*_: Any) -> Tensor:
        return torch.full((2, 8, 14, 14), torch.nan)

    model.model.blocks[1].bn.register_forward_hook(broken)
    message = (
        r"^the loss is nan in epoch 0, batch 5: first seen in the output of blocks\.1\.bn \(BatchNorm2d\)$"
    )
    with pytest.raises(FloatingPointError, match=message):
        model.training_step(batch, 5)
