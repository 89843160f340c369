"""The base class of all scales: what may move them, and the precision in which they are stored."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed, nn

from qat.gradients import straight_through
from qat.quantizers.grid import IntGrid

# The smallest normal float32 number; no scale is smaller. It is the scale of a weight's channel of zeros.
SMALLEST = torch.finfo(torch.float32).tiny


class Scale(nn.Module):
    """The size of one code, in units of the values; abstract.

    Its state lives in buffers and parameters. They are float32, whatever the model's dtype, have their final
    shape from construction, and change only in `observe` (and by the optimizer, if they are parameters).

    Args:
        high: the largest code of the grid.
        axis: the channel axis that has its own scales; None: one scale for the tensor.

    A subclass registers its state as buffers or parameters, names one of them in `statistic`, has a `value`,
    and defines `measure`; all else has a default. A `Quantizer` refuses what is missing, and
    `qat.testing.check_scale` checks the rest:

        class Largest(Scale):  # max |x| / high of the newest batch
            def __init__(self, high, shape=(), axis=None):
                super().__init__(high, axis)
                self.register_buffer("value", torch.ones(shape, dtype=torch.float32))

            def measure(self, x):
                if x.numel() == 0:
                    return torch.full_like(self.value, torch.nan)
                return above_floor(largest_magnitude(x, self.axis, self.high) / self.high)

    Raises:
        ValueError: high is not an int >= 1, or axis is neither an int nor None.

    Attributes:
        value: the stored scale, a buffer, parameter or property.
        kind: the meaning of the statistic, compared when a state is loaded.
        unset: the name of the layer, while neither data nor a loaded state has set the scale; else None.
        frozen: the scale does not change. The quantizer does not call `observe` while it is frozen.
    """

    unset: str | None = None
    step: int = 1  # the distance between neighbouring codes
    statistic: str = "value"  # the buffer or parameter that stores what `measure` returns
    clamps_first: bool = False  # the gradient passes where `low <= x / scale <= high`
    is_dynamic: bool = False  # in eval mode the scale is measured on the current tensor, until it is frozen
    is_averaged: bool = False  # a moving average over batches, which `restart` begins anew
    is_fusible: bool = False  # False with a transform or a zero point
    is_unsigned: bool = False  # it needs a grid that starts at 0

    def __init__(self, high: int, axis: int | None = None) -> None:
        super().__init__()
        if type(high) is not int or high < 1:
            rule = f"high must be the largest code of the grid, an int >= 1, got {high!r}"
            raise ValueError(f"{rule}; write IntGrid(4).high, for example")
        if axis is not None and type(axis) is not int:
            raise ValueError(f"axis must be an int or None, got {axis!r}; 0 is the first axis")
        self.high = high
        self.axis = axis
        self.kind = type(self).__name__
        self.frozen = False
        self._learned: list[str] = []  # parameters from which `freeze` has taken requires_grad
        self.register_load_state_dict_pre_hook(_load_as_float32)

    @abstractmethod
    def measure(self, x: Tensor) -> Tensor:
        """The statistic of `x` alone; not finite if x is empty, not finite, or (of activations) all zeros."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} has no measure(x), the statistic of one tensor; define it")

    def observe(self, x: Tensor) -> None:
        """Update the statistic by one batch, if `measure` gives a finite one; by default, initialize it."""
        self.initialize(x)

    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`, > 0; by default the stored one. Shape: any -> the scale's."""
        value = self.value
        assert isinstance(value, Tensor)
        return value

    @torch.no_grad()
    def initialize(self, x: Tensor) -> None:
        """Set the statistic to that of `x`, if it is finite. The first observed batch replaces it."""
        new, stored = self.measure(x), getattr(self, self.statistic)
        check_measured(self, new)
        stored.copy_(torch.where(new.isfinite(), new, stored))
        self.unset = None

    def restart(self) -> None:
        """Let the next observed batch set a moving average, which `is_averaged`."""
        self.get_buffer("batches").zero_()

    @torch.no_grad()
    def fit(self, grid: IntGrid) -> None:
        """Go on with another grid, whose largest code stands for the same value as before."""
        if self.statistic == "value":
            stored = getattr(self, self.statistic)
            stored.data.mul_(self.high / grid.high)  # .data, because an optimizer may hold the parameter
        self.take(grid)

    def take(self, grid: IntGrid) -> None:
        """Be of another grid, for which the state is loaded next."""
        self.high, self.step = grid.high, grid.step

    def subsample(self, x: Tensor) -> Tensor:
        """Fewer elements from which `measure` gets the same result, also after a ReLU; by default x."""
        return x

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        """The tensor to divide by the scale from `forward`; by default x. Shape: any -> the same."""
        return x

    def zero_point(self, scale: Tensor) -> Tensor | None:
        """The code of 0.0 for the scale from `forward`, a float without a fraction; None means 0."""
        return None

    def freeze(self) -> None:
        """Keep the scale as it is; a dynamic one no longer depends on the current tensor."""
        if not self.frozen:
            self.frozen = True
            self._learned = [name for name, p in self.named_parameters(recurse=False) if p.requires_grad]
            for name in self._learned:
                # None and not zero, with which momentum would still move the parameter.
                self.get_parameter(name).requires_grad_(False).grad = None

    def unfreeze(self) -> None:
        """Undo `freeze`."""
        if self.frozen:
            self.frozen = False
            for name in self._learned:
                self.get_parameter(name).requires_grad_(True)

    def extra_repr(self) -> str:
        return f"shape={tuple(getattr(self, self.statistic).shape)}, axis={self.axis}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # half(), double() and to() must not change a scale's dtype. torch has no public way to exclude a
        # tensor from them; test_scale.py names the version of torch for which this was checked.
        def keep_float32(tensor: Tensor) -> Tensor:
            new = fn(tensor)
            return tensor.to(new.device) if new.dtype != tensor.dtype else new

        return super()._apply(keep_float32, recurse)


def _load_as_float32(scale: Scale, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Change tensors of another dtype before they are loaded; `assign=True` would keep their dtype."""
    for name in scale.state_dict():
        if isinstance(x := state.get(prefix + name), Tensor):
            state[prefix + name] = x.to(torch.float32)


def shown(part: object) -> str:
    """A part in an error message, in one line."""
    if isinstance(part, type):
        return f"the class {part.__name__}"
    return f"{type(part).__name__}(...)" if isinstance(part, nn.Module) else repr(part)


def check_shape(shape: object, axis: int | None) -> None:
    """Refuse a shape of scales that is none, or that has no channels at the axis: a ValueError."""
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"shape must be a tuple of ints, () or (O, 1, 1, 1) for channels, got {shape!r}")
    dims = len(shape)
    inside = axis is None or -dims <= axis < dims
    if axis is not None and not (inside and all(n == 1 for a, n in enumerate(shape) if a != axis % dims)):
        rule = f"shape must have the channels at axis {axis} and ones elsewhere, got {shape}"
        raise ValueError(f"{rule}; give the axis of the channels, such as (O, 1, 1, 1) and 0")


def check_measured(scale: Scale, new: object) -> None:
    """Refuse a statistic of another shape than the stored one: a ValueError."""
    stored = getattr(scale, scale.statistic)
    if not isinstance(new, Tensor) or new.shape != stored.shape:
        got = tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__
        rule = f"{type(scale).__name__}.measure must return the shape of `{scale.statistic}`"
        wanted = f"{tuple(stored.shape)}, got {got}"
        raise ValueError(f"{rule}, {wanted}; construct the scale with the shape and axis of its tensor")


def no_batches(shape: tuple[int, ...] = ()) -> Tensor:
    """A count of observed batches, for each scale: a float, since averages of integers are truncated to 0."""
    return torch.zeros(shape, dtype=torch.float32)


def above_floor(statistic: Tensor) -> Tensor:
    """The statistic, or NaN where it is below `SMALLEST`: zeros lie on every grid and say nothing of it."""
    return torch.where(statistic >= SMALLEST, statistic, torch.nan)


def max_over_ranks(x: Tensor, missing: float = 0.0) -> Tensor:
    """The largest `x` of all ranks, so that they agree; `missing` replaces NaN and infinity."""
    x = torch.where(x.isfinite(), x, missing)
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(x, distributed.ReduceOp.MAX)
    return x


def positive(x: Tensor) -> Tensor:
    """A positive number from a parameter that an optimizer may have moved to zero or below.

    Forward: `max(|x|, 1.2e-38)`. Gradient: `g` where x >= 0, else `-g`, so that it never vanishes.
    """
    magnitude = torch.where(x < 0, -x, x)  # not abs(), which has no gradient at 0
    return straight_through(magnitude, lambda magnitude: magnitude.clamp(min=SMALLEST))


@torch.no_grad()
def set_by_first_batch(parameter: nn.Parameter, batches: Tensor, measured: Tensor) -> None:
    """Set a parameter to the first finite measurement, the largest of all ranks; count the batches."""
    new = max_over_ranks(measured)
    usable = new > 0
    # Through .data, which keeps the parameter's version: the second pass of a checkpointed block writes this
    # value again, while another backward may still need the parameter.
    parameter.data.copy_(torch.where(usable & (batches == 0), new, parameter.data))
    batches.add_(usable)
