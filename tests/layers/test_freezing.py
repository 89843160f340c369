"""What docs/freezing.md says: which call holds parameters, statistics and ranges still."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from qat import Quantization, quantize
from qat.quantizers import Quantizer

CONFIGS = {
    "observed": Quantization(),
    "learned": Quantization(weight_scale="learned", activation_scale="learned"),
    "pact": Quantization(activation_scale="pact"),
    "deployable": Quantization(deployable=True),
}
BOTH = ("requires_grad_", "eval")


def moved(config: Quantization, *calls: str) -> dict[str, bool]:
    """Train a head on a backbone after these calls; which kinds of the backbone's state moved."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU())
    model: Any = nn.Sequential(backbone, nn.Flatten(), nn.Linear(64, 2))
    quantize(model, config, torch.rand(4, 3, 8, 8))
    model.train()(torch.rand(4, 3, 8, 8))  # the first batch
    if "requires_grad_" in calls:
        backbone.requires_grad_(False)
    if "eval" in calls:
        backbone.eval()
    for quantizer in (m for m in backbone.modules() if isinstance(m, Quantizer)):
        if "freeze" in calls:
            quantizer.freeze()
    before = copy.deepcopy(backbone.state_dict())
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        model(3 * torch.rand(4, 3, 8, 8)).square().sum().backward()
        optimizer.step()
    found = {"parameters": False, "statistics": False, "ranges": False}
    for key, x in backbone.state_dict().items():
        is_range = "quantizer" in key and "weight_quantizer" not in key
        kind = (
            "ranges"
            if is_range
            else "statistics"
            if key.startswith("1.") and key[2:] not in ("weight", "bias")
            else "parameters"
        )
        found[kind] |= "weight_quantizer" not in key and not torch.equal(x, before[key])
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_both_calls_hold_everything(name: str) -> None:
    assert not any(moved(CONFIGS[name], *BOTH).values())


@pytest.mark.parametrize("name", ["observed", "deployable"])
def test_each_call_holds_a_part(name: str) -> None:
    config = CONFIGS[name]
    assert moved(config) == {"parameters": True, "statistics": True, "ranges": True}
    assert moved(config, "requires_grad_") == {"parameters": False, "statistics": True, "ranges": True}
    assert moved(config, "eval") == {"parameters": True, "statistics": False, "ranges": False}
    assert moved(config, "freeze") == {"parameters": True, "statistics": True, "ranges": False}


@pytest.mark.parametrize("name", ["learned", "pact"])
def test_the_optimizer_moves_learned_ranges(name: str) -> None:
    config = CONFIGS[name]
    assert moved(config, "eval") == {"parameters": True, "statistics": False, "ranges": True}
    if name == "learned":  # batches are counted, ranges stand still
        assert moved(config, "requires_grad_")["statistics"]
