"""Quantized models under torch.compile: one graph, the same values, state moved once."""

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from qat import Quantization, checkpoint_blocks, packed_activations, quantize
from qat.models import SmallCNN
from qat.quantizers import Scale

SHAPE = (1, 16, 16)
CONFIGS = {
    "observed": Quantization(),
    "learned": Quantization(weight_scale="learned", activation_scale="learned"),
    "pact and dorefa": Quantization(weight_scale="dorefa", activation_scale="pact"),
    "stochastic": Quantization(rounding="stochastic"),
    "ewgs, asymmetric": Quantization(rounding="ewgs", asymmetric=True),
    "one bit, power of two": Quantization(weight_bits=1, activation_bits=1, power_of_two=True),
    "midrise": Quantization(
        2, 2, weight_levels="midrise", weight_observer="mean", activation_outside="fading"
    ),
}

COMMON = ("learned",)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def built(config: Quantization) -> nn.Module:
    torch.manual_seed(0)
    return quantize(SmallCNN(SHAPE, 10, width=4, dropout=0.2), config, torch.zeros(2, *SHAPE))


def assert_same_steps(a, b, modules: tuple[nn.Module, nn.Module]) -> None:
    """Three steps on changing data; b is the reference."""
    for step in range(3):
        results = []
        for run, module in zip((a, b), modules, strict=True):
            torch.manual_seed(step)
            module.zero_grad()
            loss = F.cross_entropy(run(torch.rand(4, *SHAPE) * 3**step), torch.arange(4))
            loss.backward()
            gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
            results.append(module.state_dict() | gradients | {"loss": loss.detach()})
        assert results[0].keys() == results[1].keys()
        different = [name for name, x in results[0].items() if not torch.equal(x, results[1][name])]
        assert not different


# aot_eager: the graph is made as for the real compiler, but its operations are torch's own.
@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize(
    "name", [n if n in COMMON else pytest.param(n, marks=pytest.mark.slow) for n in CONFIGS]
)
def test_one_graph_and_the_eager_values(name: str, checkpointed: bool) -> None:
    model = built(CONFIGS[name])
    twin = copy.deepcopy(model)
    if checkpointed:
        checkpoint_blocks(model, ["blocks.*"])
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    if checkpointed:
        twin.dropout.p = model.dropout.p = 0.0  # the second pass draws its numbers in another order
    assert_same_steps(compiled, twin, (model, twin))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert all(part.unset is None for part in model.modules() if isinstance(part, Scale))


def test_a_switch_of_phase_compiles_once_more() -> None:
    model = built(CONFIGS["observed"])
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.rand(4, *SHAPE)
    graphs = []
    for training in (True, True, False, False, True):
        model.train(training)
        compiled(x)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs == [1, 1, 2, 2, 2]


@pytest.mark.filterwarnings("ignore:Using `torch.compile.module.` when there are global hooks:UserWarning")
def test_packing_refuses_a_compiled_model() -> None:
    compiled = torch.compile(built(CONFIGS["observed"]), backend="aot_eager")
    with packed_activations(), pytest.raises(ValueError, match="does not go with torch"):
        compiled(torch.rand(4, *SHAPE))


def test_a_checkpointed_sequential_is_one_graph() -> None:
    model = checkpoint_blocks(
        nn.Sequential(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Linear(3, 2)), ["0"]
    )
    twin, x = copy.deepcopy(model), torch.rand(2, 3)
    torch.compile(twin, backend="aot_eager", fullgraph=True)(x).sum().backward()
    model(x).sum().backward()
    assert all(
        torch.equal(p.grad, q.grad) for p, q in zip(model.parameters(), twin.parameters(), strict=True)
    )


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
def test_gradients_through_a_folded_batchnorm_are_the_eager_ones(checkpointed: bool) -> None:
    # The gradient of the input divides by the standard deviation from before the batch.
    gradients = []
    for compiled in (False, True):
        torch.manual_seed(0)
        block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        net = nn.Sequential(block, nn.Conv2d(8, 4, 3))
        x = torch.rand(4, 3, 12, 12)
        model = quantize(net, Quantization(deployable="onnx"), x).double()
        if checkpointed:
            checkpoint_blocks(model, ["0"])
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
        x = x.double().requires_grad_()
        run(x).square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in model.parameters()), *model.buffers()])
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)
