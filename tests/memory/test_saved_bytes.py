"""Saved bytes: exact, by layer, and without side effects."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from qat import Quantization, quantize, saved_bytes
from qat.models import SmallCNN


def test_eight_tanh() -> None:
    model = nn.Sequential(*(nn.Tanh() for _ in range(8)))
    x = torch.rand(512, 512, requires_grad=True)
    counted = saved_bytes(model, x)
    assert counted.total == 8 * 512 * 512 * 4
    assert counted.layers == {str(i): 512 * 512 * 4 for i in range(8)}


def test_a_tensor_saved_twice_counts_once_and_parameters_never() -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    model = nn.Sequential(nn.Linear(8, 8), Square())
    assert saved_bytes(model, torch.rand(4, 8)).layers == {"0": 128, "1": 128}


def test_views_count_with_their_storage_once() -> None:
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.exp()
            return (y[:2] * y[2:]).sum()

    assert saved_bytes(Views(), torch.rand(4, 8, requires_grad=True)).total == 4 * 8 * 4


def test_it_agrees_with_a_plain_count_of_the_hooks() -> None:
    model = quantize(SmallCNN(), Quantization(), torch.rand(2, 1, 28, 28))
    x = torch.rand(4, 1, 28, 28)
    known = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, Tensor] = {}

    def pack(t: Tensor) -> Tensor:
        kept.setdefault(t.untyped_storage().data_ptr(), t)
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        model(x)
    total = sum(t.untyped_storage().nbytes() for key, t in kept.items() if key not in known)
    assert saved_bytes(model, x).total == total


def test_what_is_dropped_and_what_the_batch_is_cut_from_do_not_count() -> None:
    class Drops(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.exp().exp()  # its graph is gone when the forward ends
            return x.exp()

    rows = torch.rand(1000, 8)
    assert saved_bytes(Drops(), rows[:4].requires_grad_()).total == 4 * 8 * 4
    assert saved_bytes(nn.Linear(8, 2), rows.detach()[:4]).total == 4 * 8 * 4


def test_hooks_on_the_model_get_its_output() -> None:
    outputs: list[Tensor] = []
    model = nn.Linear(8, 2)
    model.register_forward_hook(lambda *args: outputs.append(args[2]))
    saved_bytes(model, torch.rand(4, 8))
    assert outputs[0].shape == (4, 2)


def test_it_has_no_side_effects() -> None:
    model = quantize(SmallCNN(dropout=0.5), Quantization(), torch.rand(2, 1, 28, 28)).eval()
    model.blocks[1].train()
    modes = [module.training for module in model.modules()]
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(5)
    stream = torch.rand(2)
    torch.manual_seed(5)
    first = saved_bytes(model, torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.rand(2), stream)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    with torch.no_grad():
        again = saved_bytes(model, torch.rand(4, 1, 28, 28))
    assert again == first


def test_learned_scales_are_left_alone_before_the_first_batch() -> None:
    config = Quantization(weight_scale="learned", activation_scale="learned")
    model = quantize(SmallCNN(), config, torch.zeros(2, 1, 28, 28))
    before = copy.deepcopy(model.state_dict())
    saved_bytes(model, torch.rand(4, 1, 28, 28))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_learned_scales_are_left_alone_where_the_model_raises() -> None:
    config = Quantization(weight_scale="learned", activation_scale="learned")
    model = quantize(SmallCNN(), config, torch.zeros(2, 1, 28, 28))
    before = copy.deepcopy(model.state_dict())
    model.fc.register_forward_pre_hook(raises)
    with pytest.raises(ZeroDivisionError):
        saved_bytes(model, torch.rand(4, 1, 28, 28))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def raises(*_: object) -> None:
    raise ZeroDivisionError


def test_it_counts_the_same_in_inference_mode() -> None:
    model, x = SmallCNN(), torch.rand(4, 1, 28, 28)
    with torch.inference_mode():
        inside = saved_bytes(model, x)
    assert inside == saved_bytes(model, x)
    assert inside.total > 0


def test_a_backward_inside_the_model_is_checked() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.exp()
            z = y.sum()
            y.mul_(2)
            return torch.autograd.grad(z, x)[0]

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved_bytes(Inner(), torch.rand(4, requires_grad=True))
