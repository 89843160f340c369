"""PACT: the gradients of x and of the clip."""

import pytest
import torch
from torch import Tensor

from qat.quantizers import IntGrid, PactScale, PowerOfTwo, Quantizer, activation_quantizer


def with_clip(clip: float, bits: int = 4) -> Quantizer:
    quantizer = activation_quantizer(torch.ones(1), bits, signed=False, scale="pact").eval()
    quantizer.scale.clip.data.fill_(clip)
    return quantizer


def gradients(quantizer: Quantizer, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    quantizer(x).backward(g)
    clip = getattr(quantizer.scale, "inner", quantizer.scale).clip
    assert x.grad is not None
    return x.grad, clip.grad


@pytest.mark.parametrize("clip", [0.37, 1.5, 6.1])
def test_gradients_equal_the_closed_form(clip: float) -> None:
    torch.manual_seed(0)
    quantizer = with_clip(clip)
    clip = quantizer.scale.clip.item()
    x, g = torch.cat([4 * torch.randn(500), torch.tensor([clip, 0.0])]), torch.randn(502)
    of_x, of_clip = gradients(quantizer, x, g)
    assert torch.equal(of_x, torch.where((x >= 0) & (x < clip), g, 0.0))
    assert torch.equal(of_clip, torch.where(x >= clip, g, 0.0).sum())


def test_the_boundary_is_the_clip_to_the_last_bit() -> None:
    torch.manual_seed(0)
    for clip in torch.rand(50):  # in float32 clip / 15 * 15 is often not clip
        below = torch.nextafter(clip, torch.tensor(0.0))
        of_x, of_clip = gradients(
            with_clip(clip.item()), torch.stack([below, clip]), torch.tensor([1.0, 4.0])
        )
        assert of_x.tolist() == [1, 0]
        assert of_clip.item() == 4


def test_values() -> None:
    assert with_clip(3.0, bits=2)(torch.tensor([-5, 0.4, 1.5, 2.6, 9])).tolist() == [0, 0, 2, 3, 3]


@pytest.mark.parametrize("clip", [-2.0, 0.0])
def test_the_clip_is_positive_and_has_a_gradient_after_any_step(clip: float) -> None:
    quantizer = with_clip(clip)
    _, of_clip = gradients(quantizer, torch.tensor([1.0, 9.0]), torch.ones(2))
    assert quantizer(torch.tensor([9.0])).item() >= 0
    assert of_clip.item() == (-1 if clip < 0 else 2)


def test_the_first_batch_sets_the_clip_and_no_later_one() -> None:
    quantizer = activation_quantizer(torch.zeros(3), 4, signed=False, scale="pact")
    quantizer(torch.tensor([1.0, 2.5]))
    quantizer(torch.tensor([9.0]))
    assert quantizer.scale.clip.item() == 2.5
    version = quantizer.scale.clip._version
    quantizer(torch.tensor([9.0]))
    assert quantizer.scale.clip._version == version


def test_a_power_of_two_moves_the_clip_with_the_grids_end() -> None:
    scale = PactScale(15)
    scale.clip.data.fill_(20.0)  # 20 / 15 rounds to 1: the grid ends at 15
    quantizer = Quantizer(IntGrid(4, signed=False), PowerOfTwo(scale)).eval()
    of_x, of_clip = gradients(quantizer, torch.tensor([14.0, 15.0, 17.0]), torch.ones(3))
    assert of_x.tolist() == [1, 0, 0]
    assert of_clip.item() == 2
