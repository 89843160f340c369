"""Keys that torch writes into its graphs and does not document; check each new release here first."""

import torch
from torch import Tensor, fx, nn

from qat.export.integers.lowering import layer_of_call

CHECKED = ("2.14",)


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


def nested() -> nn.Module:
    return nn.Sequential(nn.Identity(), nn.Sequential(Inner()))


def test_the_release_was_checked() -> None:
    release = ".".join(torch.__version__.split(".")[:2])
    assert release in CHECKED, (
        f"torch {release} was not checked: see whether the tests below pass, and whether there is a public "
        "way to the module of a node by now; then add the release to CHECKED"
    )


def test_fx_names_the_module_whose_forward_calls_a_function() -> None:
    (relu,) = fx.symbolic_trace(nested()).graph.find_nodes(op="call_function", target=torch.relu)
    assert layer_of_call(relu) == "1.0"
