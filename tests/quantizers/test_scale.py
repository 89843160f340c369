"""What torch's private `Module._apply` must do for scales to stay float32."""

import inspect

import torch
from torch import nn

from qat.quantizers import LearnedScale


def test_modules_are_converted_by_apply() -> None:
    # Checked with torch 2.14: to(), half(), double() and cuda() call `_apply(fn)` of every submodule.
    # If this fails with a later torch, `Scale._apply` needs another way to keep its state in float32.
    assert list(inspect.signature(nn.Module._apply).parameters) == ["self", "fn", "recurse"]
    model = nn.ModuleDict({"scale": LearnedScale(7), "linear": nn.Linear(1, 1)})
    for convert in (model.half, model.double, lambda: model.to(torch.bfloat16)):
        convert()
        assert model.scale.value.dtype == torch.float32
        assert model.linear.weight.dtype != torch.float32
    assert model.to("meta").scale.value.device.type == "meta"
