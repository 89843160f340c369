"""Conversions that take a tensor out of the graph."""

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qat.export.onnx.graph_breaks import refuse_graph_breaks


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "way"),
    [
        (lambda x: torch.from_numpy(x.numpy() + 1), "Tensor.numpy"),
        (lambda x: x + torch.as_tensor(np.asarray(x)), "NumPy"),
        (lambda x: x + torch.tensor(x.tolist()), "Tensor.tolist"),
    ],
)
def test_the_module_is_named(function: Callable[[Tensor], Tensor], way: str) -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sequential(Calls(function)))
    with pytest.raises(
        ValueError, match=rf"^1\.0 \(Calls\) leaves the graph through {re.escape(way)}: .*; write it"
    ):
        refuse_graph_breaks(model, (torch.rand(2, 1, 3, 3),))


def test_tensors_that_stay_in_the_graph_pass() -> None:
    refuse_graph_breaks(
        nn.Sequential(nn.Conv2d(1, 1, 1), Calls(lambda x: x.clone() + 1)), (torch.rand(2, 1, 3, 3),)
    )
