"""What all scales have in common: what may move them, and the precision in which they are stored."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed, nn

# Smaller float32 numbers are not normal. It is a floor for channels of zeros, not a range: a channel whose
# largest magnitude is 1e-30 still gets its own scale.
SMALLEST = torch.finfo(torch.float32).tiny


class Scale(nn.Module):
    """The size of one code, in units of the values; abstract.

    Its state lives in buffers and parameters that are float32, whatever the model's dtype, have their final
    shape from construction, and move only in `observe` (and by the optimizer, if they are parameters).

    Class attributes:
        statistic: the name of the buffer or parameter that stores what `measure` returns.
        clamps_first: codes are clamped to the grid before they are rounded, so that the gradient passes where
            `low <= x / scale <= high`.
        passes_outside: the gradient of x passes beyond the ends of the grid, too.
        is_dynamic: in eval mode the scale is that of the tensor at hand, until it is frozen.

    Attributes:
        frozen: the scale stays as it is. The quantizer does not call `observe` while it is frozen.
    """

    statistic: str = "value"
    clamps_first: bool = False
    passes_outside: bool = False
    is_dynamic: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.frozen = False
        self._learned: list[str] = []  # parameters from which `freeze` has taken requires_grad

    @abstractmethod
    def measure(self, x: Tensor) -> Tensor:
        """The statistic of `x` alone; not finite if x is empty or not finite."""
        raise NotImplementedError

    @abstractmethod
    def observe(self, x: Tensor) -> None:
        """Move the scale by one batch, unless the batch is empty or not finite."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`, > 0. Shape: any -> the scale's."""
        raise NotImplementedError

    @torch.no_grad()
    def initialize(self, x: Tensor) -> None:
        """Set the statistic to that of `x`. The first batch that is observed will still replace it."""
        new, stored = self.measure(x), getattr(self, self.statistic)
        stored.copy_(torch.where(new.isfinite(), new, stored))

    def subsample(self, x: Tensor) -> Tensor:
        """Fewer elements from which `observe` measures the same, also after a ReLU; x if it needs all."""
        return x

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        """The tensor to divide by the scale that `forward` returned: by default x itself.

        Shape: any -> the same, in x's dtype.
        """
        return x

    def zero_point(self, scale: Tensor) -> Tensor | None:
        """The code of 0.0, a float without fraction; None: 0. `scale` is what `forward` returned."""
        return None

    @property
    def kind(self) -> str:
        """What the statistic means; compared when a state is loaded."""
        return type(self).__name__

    @property
    def is_fusible(self) -> bool:
        """Whether one Function can do everything: no transform, zero point or gradient outside the grid."""
        kind = type(self)
        overrides = kind.transform is not Scale.transform or kind.zero_point is not Scale.zero_point
        return not overrides and not self.passes_outside

    def freeze(self) -> None:
        """Keep the scale as it is; a dynamic one no longer depends on the tensor at hand."""
        if not self.frozen:
            self.frozen = True
            self._learned = [name for name, p in self.named_parameters(recurse=False) if p.requires_grad]
            for name in self._learned:
                # A gradient of zero is not enough: momentum would move the parameter. Without a gradient
                # the optimizer skips it.
                parameter = getattr(self, name)
                parameter.requires_grad_(False)
                parameter.grad = None

    def unfreeze(self) -> None:
        """Undo `freeze`."""
        if self.frozen:
            self.frozen = False
            for name in self._learned:
                getattr(self, name).requires_grad_(True)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # half(), double() and to() are for weights and activations. torch has no public way to exclude a
        # tensor from them; test_scale.py names the version of torch for which this was checked.
        def keep_float32(tensor: Tensor) -> Tensor:
            new = fn(tensor)
            return tensor.to(new.device) if new.dtype != tensor.dtype else new

        return super()._apply(keep_float32, recurse)


def max_over_ranks(x: Tensor, missing: float = 0.0) -> Tensor:
    """`x` where it is finite, else `missing`; the largest of all ranks, so that they agree."""
    x = torch.where(x.isfinite(), x, missing)
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(x, distributed.ReduceOp.MAX)
    return x


class _Positive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x < 0)
        return x.abs().clamp(min=SMALLEST)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (negative,) = ctx.saved_tensors
        return torch.where(negative, -g, g)


def positive(x: Tensor) -> Tensor:
    """A positive number from a parameter that an optimizer may have moved to zero or below.

    Forward: `max(|x|, 1.2e-38)`. Gradient: `g` where x >= 0, else `-g`, so that it never vanishes.

    Shape: any -> the same.
    """
    return _Positive.apply(x)


def set_by_first_batch(parameter: nn.Parameter, batches: Tensor, new: Tensor, usable: Tensor) -> None:
    """Set a parameter to what the first usable batch measured, and count the usable batches."""
    # Through .data, for the version must not change: the second pass of a checkpointed block writes the value
    # that is there, while the backward of another pass waits for the parameter.
    parameter.data.copy_(torch.where(usable & (batches == 0), new, parameter.data))
    batches.add_(usable.any())
