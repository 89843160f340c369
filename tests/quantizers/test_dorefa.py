"""DoReFa: the squeezed weight and its true gradient."""

import pytest
import torch

from qat.quantizers import DorefaScale, weight_quantizer


@pytest.mark.parametrize("axis", [None, 0])
def test_gradient_is_that_of_tanh_over_its_maximum(axis: int | None) -> None:
    torch.manual_seed(0)
    w, g = torch.randn(3, 4, 2, 2, requires_grad=True), torch.randn(3, 4, 2, 2)
    (got,) = torch.autograd.grad(weight_quantizer(w.detach(), 4, axis=axis, scale="dorefa")(w), w, g)
    t = w.tanh()
    dims = (0, 1, 2, 3) if axis is None else (1, 2, 3)
    (expected,) = torch.autograd.grad(t / t.abs().amax(dims, keepdim=True), w, g)
    assert torch.equal(got, expected)


def test_gradient_by_hand() -> None:
    w = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(weight_quantizer(w.detach(), 4, axis=None, scale="dorefa")(w)[0], w)
    t = torch.tanh(w.detach())
    largest = -t[1]  # t0 / -t1
    expected = torch.stack([(1 - t[0] ** 2) / largest, t[0] / largest**2 * (1 - t[1] ** 2)])
    torch.testing.assert_close(got, expected)


def test_channels_have_their_own_maxima_with_an_axis() -> None:
    w = torch.tensor([[0.1, -0.2], [3.0, 1.0]])
    assert weight_quantizer(w, 4, axis=0, scale="dorefa")(w).abs().amax(1).tolist() == [1, 1]
    assert weight_quantizer(w, 4, axis=None, scale="dorefa")(w).abs().amax(1).tolist() == [
        pytest.approx(1 / 7),
        1,
    ]


def test_the_maximum_is_that_of_the_weight_at_hand_in_eval_mode_until_frozen() -> None:
    w = torch.tensor([0.3, -1.0])
    quantizer = weight_quantizer(w, 8, axis=None, scale="dorefa").eval()
    assert quantizer(w / 10).abs().max() == 1
    quantizer.freeze()
    assert quantizer(w / 10).abs().max() < 0.2


def test_the_stored_maximum_has_the_shape_of_the_axis() -> None:
    quantizer = weight_quantizer(torch.randn(3, 4, 2, 2), 4, axis=0, scale="dorefa")
    assert isinstance(quantizer.scale, DorefaScale)
    assert quantizer.scale.largest.shape == quantizer.scale.value.shape == (3, 1, 1, 1)
