"""Zero points: torch's fake quantization is the reference."""

import pytest
import torch

from qat.quantizers import activation_quantizer


@pytest.mark.parametrize("bits", range(2, 9))
@pytest.mark.parametrize(("shift", "factor"), [(0.0, 1.0), (0.9, 0.3), (-5.0, 2.0), (5.0, 1.0)])
def test_value_and_gradient_equal_torch_fake_quantize(bits: int, shift: float, factor: float) -> None:
    torch.manual_seed(bits)
    batch = factor * torch.randn(400) + shift
    quantizer = activation_quantizer(torch.zeros(1), bits, signed=True, asymmetric=True)
    quantizer(batch)
    quantizer.eval()
    x, theirs = (3 * batch).requires_grad_(), (3 * batch).requires_grad_()
    scale = quantizer.scale(x)
    zero = quantizer.scale.zero_point(scale)
    assert zero == zero.round()
    assert 0 <= zero <= 2**bits - 1
    g = torch.randn(400)
    expected = torch.fake_quantize_per_tensor_affine(theirs, scale.item(), int(zero), 0, 2**bits - 1)
    y = quantizer(x)
    torch.testing.assert_close(y, expected)
    y.backward(g)
    expected.backward(g)
    assert x.grad is not None
    assert torch.equal(x.grad, theirs.grad)
    assert quantizer(torch.zeros(1)).item() == 0.0
    assert quantizer.codes(torch.zeros(1)).item() == zero


def test_rounded_before_the_zero_point_is_added() -> None:
    quantizer = activation_quantizer(torch.zeros(1), 4, signed=True, asymmetric=True).eval()
    quantizer.scale.range.copy_(torch.tensor([-3.5, 4.0]))  # scale 0.5, zero point 7
    x = torch.tensor([0.25, 0.75, -0.25, -0.75, 1.25, -9, 9])
    assert quantizer.codes(x).tolist() == [7, 9, 7, 5, 9, 0, 15]
    assert quantizer(x).tolist() == [0, 1, 0, -1, 1, -3.5, 4]


def test_moving_averages_of_both_ends_widened_to_zero() -> None:
    quantizer = activation_quantizer(torch.zeros(1), 4, signed=True, asymmetric=True)
    ends = []
    for batch in ([1.0, 2.0], [-10.0, 12.0], [-5.0, -1.0]):
        quantizer.observe(torch.tensor(batch))
        ends += quantizer.scale.range.tolist()
    assert ends == pytest.approx([0, 2, -1, 3, -1.4, 2.7])
