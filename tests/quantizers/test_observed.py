"""Observed scales: what they measure, and when they move."""

import pytest
import torch

from qat.quantizers import IntGrid, ObservedScale, Quantizer


def test_moving_average_of_the_batches() -> None:
    scale = ObservedScale(7, "ema")
    values = []
    for largest in (7.0, 14.0, 3.5):
        scale.observe(torch.tensor([0.1, -largest]))
        values.append(scale.value.item())
    expected = torch.tensor(1.0)
    assert values[0] == 1.0
    for got, new in zip(values[1:], (2.0, 0.5), strict=True):
        expected = 0.9 * expected + 0.1 * torch.tensor(new)
        assert got == expected.item()
    assert scale.batches.item() == 3


def test_the_first_batch_replaces_the_initial_scale() -> None:
    scale = ObservedScale(7, "ema")
    scale.initialize(torch.zeros(4))
    scale.observe(torch.tensor([3.5]))
    assert scale.value.item() == 0.5


def test_training_observes_then_quantizes_and_eval_moves_nothing() -> None:
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "ema"))
    assert quantizer(torch.tensor([7.0])).item() == 7.0
    before = {key: value.clone() for key, value in quantizer.state_dict().items()}
    assert quantizer.eval()(torch.tensor([70.0])).item() == 7.0
    quantizer.train().codes(torch.tensor([70.0]))
    assert all(torch.equal(before[key], value) for key, value in quantizer.state_dict().items())


def test_it_moves_once_a_forward_without_grad_too() -> None:
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "ema"))
    with torch.no_grad():
        quantizer(torch.ones(3))
    assert quantizer.scale.batches.item() == 1


@pytest.mark.parametrize("mode", [True, False])
def test_a_weights_scale_is_that_of_the_weight_at_hand_in_every_mode(mode: bool) -> None:
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "max", (2, 1), axis=0)).train(mode)
    assert quantizer(torch.tensor([[7.0, 1.0], [0.0, -14.0]])).tolist() == [[7, 1], [0, -14]]
    assert quantizer(torch.tensor([[70.0, 10.0], [0.0, -1.4]])).tolist() == [
        [70, 10],
        [0, pytest.approx(-1.4)],  # 7 * (1.4 / 7) rounds twice
    ]


def test_eval_does_not_store_a_weights_scale() -> None:
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "max", (2, 1), axis=0)).eval()
    quantizer(torch.rand(2, 5))
    assert quantizer.scale.value.tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("shape", [(3, 2, 5, 5), (3, 4), (1, 2, 3, 3)])
def test_per_channel_maximum(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(shape)
    scale = ObservedScale(7, "max", (shape[0],) + (1,) * (len(shape) - 1), axis=0)
    scale.observe(weight)
    assert scale.value.shape == (shape[0],) + (1,) * (len(shape) - 1)
    for channel in range(shape[0]):
        assert scale.value[channel].item() == (weight[channel].abs().max() / 7).item()


def test_zero_channels_and_tiny_channels() -> None:
    weight = torch.tensor([[0.0, 0.0], [1e-3, -5e-4], [1e-30, 0.0]])
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "max", (3, 1), axis=0))
    values = quantizer(weight)
    scale = quantizer.scale.value.flatten()
    assert (scale > 0).all()
    assert scale.isfinite().all()
    assert values[0].tolist() == [0, 0]
    assert scale[1].item() == (torch.tensor(1e-3) / 7).item()
    assert scale[2].item() == (torch.tensor(1e-30) / 7).item()


@pytest.mark.parametrize("mode", [True, False])
def test_the_measured_magnitude_is_of_both_signs(mode: bool) -> None:
    scale = ObservedScale(1, "max").train(mode)
    for x in (torch.tensor([-3.0, 2.0]), torch.tensor([-2.0, 3.0])):
        assert scale.measure(x).item() == 3.0


def test_loading_into_a_fresh_module_is_strict_and_the_average_goes_on() -> None:
    old = ObservedScale(7, "ema")
    old.observe(torch.tensor([7.0]))
    new = ObservedScale(7, "ema")
    new.load_state_dict(old.state_dict(), strict=True)
    new.observe(torch.tensor([14.0]))
    assert new.value.item() == (0.9 * torch.tensor(1.0) + 0.1 * torch.tensor(2.0)).item()


def test_buffers_are_moved_in_place() -> None:
    scale = ObservedScale(7, "ema")
    value, batches = scale.value, scale.batches
    scale.observe(torch.ones(3))
    assert scale.value is value
    assert scale.batches is batches


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("observer", "axis", "shape"), [("ema", None, ()), ("max", 0, (2, 1))])
def test_statistics_stay_float32(
    dtype: torch.dtype, observer: str, axis: int | None, shape: tuple[int, ...]
) -> None:
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, observer, shape, axis)).to(dtype)
    x = torch.tensor([[0.0, 0.0], [0.1, 0.2]], dtype=dtype)
    y = quantizer(x)
    assert quantizer.scale.measure(x).dtype == torch.float32
    assert quantizer.scale.value.dtype == torch.float32
    assert y.dtype == dtype
    assert y[0].tolist() == [0, 0]


@pytest.mark.parametrize("mode", [True, False])
def test_a_weight_that_is_not_finite_keeps_the_stored_scale(mode: bool) -> None:
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "max", (2, 1), axis=0))
    quantizer(torch.tensor([[7.0, 1.0], [14.0, 1.0]]))
    weight = torch.tensor([[torch.nan, 1.0], [28.0, 1.0]])
    quantizer.train(mode)(weight)
    assert quantizer.scale(weight).tolist() == [[1.0], [4.0]]


def test_unknown_observer() -> None:
    with pytest.raises(ValueError, match="unknown observer 'mx'; nearest: max"):
        ObservedScale(7, "mx")


def test_codes_are_those_of_the_weight_as_it_is_now_in_training_too() -> None:
    quantizer = Quantizer(IntGrid(4), ObservedScale(7, "max", (2, 1), axis=0))
    weight = torch.rand(2, 5)
    quantizer(weight)
    assert torch.equal(quantizer.codes(2 * weight), quantizer.codes(weight))
    assert quantizer.training
    assert quantizer.scale.training
