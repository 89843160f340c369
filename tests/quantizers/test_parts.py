"""Wrong parts of a quantizer are refused when it is constructed, or at its first call, in one line."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat.gradients import (
    clamp,
    clip_gradient_norm,
    clip_gradient_value,
    numpy_function,
    round_ewgs,
    round_soft,
    scale_gradient,
    straight_through,
)
from qat.quantizers import (
    AsymmetricScale,
    DorefaScale,
    IntGrid,
    LearnedScale,
    ObservedScale,
    Observer,
    PactScale,
    PowerOfTwo,
    Quantizer,
    Scale,
    activation_quantizer,
    weight_quantizer,
)
from qat.quantizers.observers import largest_magnitude

GRID, X = IntGrid(4), torch.linspace(-1, 1, 48).reshape(4, 3, 2, 2)


def scale() -> Scale:
    return ObservedScale(7, "ema")


class Rounds(torch.autograd.Function):
    pass


NAN, INF = float("nan"), float("inf")
ONE_LINE_ERRORS: list[tuple[Callable[[], Any], str]] = [
    # the parts of a quantizer
    (lambda: Quantizer(GRID, "observed"), "scale must be a Scale, got 'observed'; construct one"),
    (lambda: Quantizer(GRID, ObservedScale), "scale must be a Scale, got the class ObservedScale; construct"),
    (lambda: Quantizer(GRID, 0.1), "scale must be a Scale, got 0.1"),
    (lambda: Quantizer(GRID, nn.Identity()), r"scale must be a Scale, got Identity\(\.\.\.\)"),
    (lambda: Quantizer(4, scale()), r"grid must be an IntGrid, got 4; write IntGrid\(4\)"),
    (lambda: Quantizer(IntGrid, scale()), "grid must be an IntGrid, got the class IntGrid"),
    (lambda: Quantizer(GRID, scale(), "ste"), "rounding must be a function, got 'ste'; give .*round_ste"),
    (lambda: Quantizer(GRID, scale(), "half_up"), "rounding must be a function, got 'half_up'; give one of"),
    (lambda: Quantizer(GRID, scale(), None), "rounding must be a function, got None"),
    (lambda: Quantizer(GRID, scale(), Rounds), "got the class Rounds; give Rounds.apply"),
    (lambda: Quantizer(GRID, ObservedScale(15, "ema")), r"high, 7, got 15; write ObservedScale\(7, \.\.\.\)"),
    (lambda: Quantizer(GRID, PactScale(7)), r"start at 0 with PactScale, got -7..7; .* signed=False"),
    (lambda: Quantizer(GRID, PowerOfTwo(AsymmetricScale(7))), "grid must start at 0 with PowerOfTwo"),
    (lambda: weight_quantizer(X, 4, axis=0, rounding="ste"), "rounding must be a function, got 'ste'"),
    # grids
    (lambda: IntGrid("4"), "bits must be one of the integers .* got '4'"),
    (lambda: IntGrid(4, "unsigned"), "signed must be True or False, got 'unsigned'"),
    (lambda: IntGrid(4, narrow="no"), "narrow must be True, False or None, got 'no'"),
    # scales and observers
    (lambda: ObservedScale("7", "ema"), "high must be .* an int >= 1, got '7'"),
    (lambda: LearnedScale(NAN), "high must be .* an int >= 1, got nan"),
    (lambda: PactScale(0), "high must be .* an int >= 1, got 0"),
    (lambda: AsymmetricScale(GRID), r"high must be .* got IntGrid\("),
    (lambda: ObservedScale(7, "emma"), "unknown observer 'emma'; nearest: ema"),
    (lambda: ObservedScale(7, ["ema"]), r"unknown observer \['ema'\]"),
    (lambda: ObservedScale(7, largest_magnitude), r"Observer\(largest_magnitude, averaging_constant=0.1\)"),
    (lambda: Observer("max"), "measure must be a function"),
    (lambda: Observer(torch.amax, averaging_constant=NAN), r"averaging_constant must be in \(0, 1\]"),
    (lambda: Observer(torch.amax, averaging_constant="0.1"), r"averaging_constant must be in \(0, 1\]"),
    (lambda: ObservedScale(7, "max", 4, 0), "shape must be a tuple of ints, .* got 4"),
    (lambda: LearnedScale(7, (4, 1, 1, 1), 5), "shape must have the channels at axis 5"),
    (lambda: DorefaScale(7, (4, 1, 1, 1), 1), "shape must have the channels at axis 1"),
    (lambda: ObservedScale(7, "max", (), 0), "shape must have the channels at axis 0"),
    (lambda: ObservedScale(7, "max", (4, 1), "0"), "axis must be an int or None, got '0'"),
    (lambda: PowerOfTwo(LearnedScale), "inner must be a Scale"),
    (lambda: PowerOfTwo(PowerOfTwo(scale())), "inner must be a Scale that is not rounded yet"),
    # the first call
    (lambda: Quantizer(GRID, scale())("x"), "x must be a floating-point tensor, got str"),
    (
        lambda: Quantizer(GRID, scale())(torch.arange(3)),
        "floating-point tensor, got torch.int64; write x.flo",
    ),
    (lambda: Quantizer(GRID, scale()).codes(torch.arange(3)), "floating-point tensor, got torch.int64"),
    (lambda: Quantizer(GRID, LearnedScale(7, (6, 1, 1, 1), 0))(X), "must broadcast .* give|must broadcast"),
    (lambda: Quantizer(GRID, ObservedScale(7, "ema", (6, 1, 1, 1), 0)).eval()(X), "must broadcast against x"),
    (
        lambda: Quantizer(GRID, ObservedScale(7, "max", (4, 1, 1, 1)))(X),
        r"measure must .* \(4, 1, 1, 1\), got",
    ),
    (
        lambda: Quantizer(GRID, ObservedScale(7, Observer(lambda x, axis, high: x.max().item())))(X),
        "an observer must return a tensor",
    ),
    (
        lambda: Quantizer(GRID, scale(), lambda x: x.round().sum(0, keepdim=True))(X),
        "rounding must keep the sh",
    ),
    # `observe` alone
    (lambda: Quantizer(GRID, scale()).observe(torch.arange(3)), "floating-point tensor, got torch.int64"),
    (lambda: Quantizer(GRID, Replaced()).observe(X), "Replaced.value must stay the same tensor"),
    (lambda: Quantizer(GRID, LearnedScale(7, (6, 1, 1, 1), 0)).observe(X), "must broadcast against x"),
    # numbers of the gradients
    (lambda: round_ewgs(X, "a"), "delta must be >= 0, got 'a'"),
    (lambda: round_ewgs(X, INF), "delta must be >= 0, got inf"),
    (lambda: round_soft(X, None), "sharpness must be > 0, got None"),
    (lambda: round_soft(X, INF), "sharpness must be > 0, got inf; .* any finite"),
    (lambda: clamp(X, "a", 1), "low and high must be numbers or tensors, got 'a' and 1"),
    (lambda: clamp(X, NAN, 1), "low must be <= high, got nan"),
    (lambda: scale_gradient(X, NAN), "factor must be a finite number, got nan"),
    (lambda: scale_gradient(X, "a"), "factor must be a finite number, got 'a'"),
    (lambda: clip_gradient_value(X, "a"), "limit must be > 0, got 'a'"),
    (lambda: clip_gradient_norm(X, None), "limit must be > 0, got None"),
    (lambda: numpy_function(3), "forward must be a function of NumPy arrays, got 3"),
    (lambda: straight_through(X, "round"), "function must be callable, got 'round'"),
    (lambda: straight_through(X, torch.sum), r"function must keep the shape \(4, 3, 2, 2\), got \(\)"),
]


@pytest.mark.parametrize(("call", "text"), ONE_LINE_ERRORS, ids=[text for _, text in ONE_LINE_ERRORS])
def test_a_wrong_call_is_one_line(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as error:
        call()
    assert "\n" not in str(error.value)


class Sound(Scale):
    """A user-defined scale with the least that one needs; each one below lacks one thing."""

    def __init__(self, start: Tensor | None = None) -> None:
        super().__init__(7)
        self.register_buffer("value", torch.ones(()) if start is None else start)

    def measure(self, x: Tensor) -> Tensor:
        return x.detach().abs().amax() / 7


class NoInit(Sound):
    def __init__(self) -> None:
        self.high = 7


class NoMeasure(Sound):
    measure = Scale.measure


class NotRegistered(Sound):
    def __init__(self) -> None:
        Scale.__init__(self, 7)
        self.value = torch.ones(())


class OtherStatistic(Sound):
    statistic = "largest"


class NoValue(Sound):
    statistic = "largest"

    def __init__(self) -> None:
        Scale.__init__(self, 7)
        self.register_buffer("largest", torch.ones(()))


class FloatValue(NoValue):
    value = 1.0


class Replaced(Sound):
    def observe(self, x: Tensor) -> None:
        self.value = self.measure(x)


class Resized(Sound):
    def observe(self, x: Tensor) -> None:
        self.value.resize_(1, 1)


class MovedInForward(Sound):
    def forward(self, x: Tensor) -> Tensor:
        self.value.mul_(0.9).add_(0.1 * x.abs().amax() / 7)
        return self.value.clone()


class ReplacedInForward(Sound):
    def forward(self, x: Tensor) -> Tensor:
        self.value = 0.9 * self.value + 0.1 * self.measure(x)
        return self.value


class Lazy(Sound):
    def __init__(self) -> None:
        super().__init__(torch.empty(0))


FAULTS: list[tuple[Callable[[], Scale], str]] = [
    (NoInit, r"NoInit.__init__ must call super\(\).__init__"),
    (NoMeasure, r"NoMeasure must define measure\(x\)"),
    (NotRegistered, "NotRegistered.statistic must name a buffer .*'value'; call self.register_buffer"),
    (OtherStatistic, "OtherStatistic.statistic must name a buffer or parameter, got 'largest'"),
    (NoValue, "NoValue.value must be the stored scale, a tensor, but there is none"),
    (FloatValue, "FloatValue.value must be the stored scale, a tensor"),
    (Lazy, r"Lazy.value must have its final shape from construction, got \(0,\)"),
    (
        lambda: Sound(torch.ones((), dtype=torch.float64)),
        "Sound.value must be torch.float32, got torch.float64",
    ),
    (lambda: Sound(torch.zeros(())), "Sound.value must be > 0 from construction, got 0.0"),
    (lambda: Sound(torch.tensor(NAN)), "Sound.value must be > 0 from construction, got nan"),
    (lambda: Sound(torch.ones(1)), r"Sound.measure must return the shape of `value`, \(1,\), got \(\)"),
    (Replaced, r"Replaced.value must stay the same tensor, .* self.value.copy_\(new\)"),
    (Resized, "Resized.value must stay the same tensor, of its first shape"),
    (MovedInForward, "MovedInForward.value must record no graph, but was changed outside of `observe`"),
    (ReplacedInForward, "ReplacedInForward.value must"),
]


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(("make", "text"), FAULTS, ids=[text for _, text in FAULTS])
def test_a_fault_of_a_scale_is_said_at_once(make: Callable[[], Scale], text: str, rounded: bool) -> None:
    def use() -> None:
        part = make()
        Quantizer(GRID, PowerOfTwo(part) if rounded and make is not NoInit else part)(
            X.clone().requires_grad_()
        )

    with pytest.raises(ValueError, match=text) as error:
        use()
    assert "\n" not in str(error.value)


def test_a_refused_call_is_refused_again() -> None:
    quantizer = Quantizer(GRID, Replaced())
    for _ in range(2):
        with pytest.raises(ValueError, match="must stay the same tensor"):
            quantizer(X)


def test_the_abstract_measure_has_a_text() -> None:
    with pytest.raises(NotImplementedError, match=r"NoMeasure has no measure\(x\)"):
        NoMeasure().observe(X)


class Learns(Scale):
    """Observes with gradients on, into a parameter: a quantizer turns them off."""

    def __init__(self) -> None:
        super().__init__(7)
        self.value = nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.ones(()))

    def measure(self, x: Tensor) -> Tensor:
        return x.abs().amax() / 7

    def observe(self, x: Tensor) -> None:
        self.value.copy_(self.measure(x))
        self.mean.mul_(0.9).add_(self.value)


def test_a_scale_that_observes_with_gradients_on_trains() -> None:
    quantizer = Quantizer(GRID, Learns())
    for _ in range(3):
        quantizer(X.clone().requires_grad_()).square().sum().backward()
    assert not quantizer.scale.mean.requires_grad
    assert torch.equal(quantizer.scale.value, X.abs().max() / 7)


def halfway(x: Tensor, axis: int | None, high: int) -> Tensor:
    return largest_magnitude(x, axis, high) / 2


@pytest.mark.parametrize("constant", [None, 0.1, 1])
def test_a_user_defined_observer(constant: float | None) -> None:
    quantizer = Quantizer(GRID, ObservedScale(7, Observer(halfway, averaging_constant=constant)))
    quantizer(X)
    assert torch.equal(quantizer.scale.value, X.abs().max() / 2 / 7)
    assert (quantizer.scale.is_dynamic, quantizer.scale.is_averaged) == (
        constant is None,
        constant is not None,
    )


@pytest.mark.parametrize(
    ("stored", "own", "text"),
    [
        (
            {"signed": True},
            {"signed": False},
            r"8 bits \(-127..127\), .* 8 bits \(0..255\); .*input_signed=True",
        ),
        ({"signed": False}, {"signed": True}, "input_signed=False .*follows from the activation before"),
        ({"asymmetric": True, "signed": True}, {"signed": True}, "set the model's asymmetric=True"),
        ({"signed": True}, {"asymmetric": True, "signed": True}, "set the model's asymmetric=False"),
        ({"asymmetric": True, "signed": True}, {"signed": False}, "set the model's asymmetric=True"),
        ({"signed": True, "power_of_two": True}, {"signed": True}, "set the model's power_of_two=True"),
        (
            {"signed": True, "scale": "learned"},
            {"signed": True},
            "set the model's activation_scale to that of",
        ),
    ],
)
def test_a_refused_state_names_the_option_that_differs(stored: Any, own: Any, text: str) -> None:
    theirs, ours = (activation_quantizer(X.abs(), 8, **options) for options in (stored, own))
    with pytest.raises(ValueError, match=text):
        nn.ModuleDict({"act": ours}).load_state_dict(nn.ModuleDict({"act": theirs}).state_dict())


def test_a_refused_state_of_a_weight_names_its_options() -> None:
    def layer(grid: IntGrid, made: Scale) -> nn.Module:
        return nn.ModuleDict({"weight_quantizer": Quantizer(grid, made)})

    own = layer(IntGrid(4), scale())
    for other, text in (
        (
            layer(IntGrid(3), ObservedScale(3, "ema")),
            "weight_bits, or first_last_bits, to those of the state",
        ),
        (layer(IntGrid(4, narrow=False), scale()), r"4 bits \(-8..7\), .* IntGrid to narrow=False"),
        (layer(IntGrid(4), LearnedScale(7)), "weight_scale to that of the state"),
    ):
        with pytest.raises(ValueError, match=text):
            own.load_state_dict(other.state_dict())
