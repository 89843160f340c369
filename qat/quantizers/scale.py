"""What every scale has in common: who may move it, and in which precision it is kept."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed, nn

# Below this a float32 is no longer normal. It is a floor for all-zero channels, not a range: a channel whose
# largest magnitude is 1e-30 still gets its own scale.
SMALLEST = torch.finfo(torch.float32).tiny


class Scale(nn.Module):
    """The size of one code, in units of the values; abstract.

    Its state lives in buffers and parameters that are float32, whatever the model's dtype, have their final
    shape from construction, and move in `observe` alone (and by the optimizer, where they are parameters).

    Class attributes: `clamps_first`: codes are limited to the grid before they are rounded, so that "inside"
    means `low <= x / scale <= high`. `passes_outside`: the gradient of x passes beyond the ends, too.
    `follows`: in eval mode the scale is that of the tensor at hand.

    Buffers: `frozen`, bool: whether `observe` moves nothing.
    """

    clamps_first: bool = False
    passes_outside: bool = False
    follows: bool = False
    frozen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frozen", torch.zeros((), dtype=torch.bool))

    @abstractmethod
    def start(self, x: Tensor) -> None:
        """Give the scale its first value; the first batch that is observed will still set it anew."""
        raise NotImplementedError

    def glance(self, x: Tensor) -> Tensor:
        """Fewer elements from which `observe` learns the same, also after a ReLU; x where it needs all."""
        return x

    @abstractmethod
    def observe(self, x: Tensor) -> None:
        """Move the scale by one batch, unless it is frozen, or the batch is empty or not finite."""
        raise NotImplementedError

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The scale for `x`, > 0. Shape: any -> the scale's."""
        raise NotImplementedError

    @property
    def plain(self) -> bool:
        """Whether there is neither transform, zero point nor gradient outside: one Function does it all."""
        kind = type(self)
        overrides = kind.transform is not Scale.transform or kind.zero_point is not Scale.zero_point
        return not overrides and not self.passes_outside

    def transform(self, x: Tensor, scale: Tensor) -> Tensor:
        """What is divided by the scale that `forward` gave: x, unless the method says otherwise.

        Shape: any -> the same, in x's dtype.
        """
        return x

    def zero_point(self, scale: Tensor) -> Tensor | None:
        """The code of 0.0, a float without fraction, where it is not 0. `scale` is what `forward` gave."""
        return None

    def freeze(self) -> None:
        """From now on the scale stays as it is; a weight's scale no longer follows the weight."""
        self.frozen.fill_(True)
        self._let_learn(False)

    def unfreeze(self) -> None:
        """Undo `freeze`."""
        self.frozen.fill_(False)
        self._let_learn(True)

    def _let_learn(self, learns: bool) -> None:
        # A gradient of zero is not enough: momentum would move a parameter on. Without one it is skipped.
        for parameter in self.parameters():
            parameter.requires_grad_(learns)
            parameter.grad = parameter.grad if learns else None

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._let_learn(not self.frozen)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def float32_stays(tensor: Tensor) -> Tensor:
            new = fn(tensor)  # half() and double() are for weights and activations
            return tensor.to(new.device) if new.dtype != tensor.dtype else new

        return super()._apply(float32_stays, recurse)


def largest_of_ranks(x: Tensor, missing: float = 0.0) -> Tensor:
    """`x` where it is finite, else `missing`; across ranks the largest, so that all of them agree."""
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
    """A positive number from a parameter that an optimizer may have carried to or below zero.

    Forward: `max(|x|, 1.2e-38)`. Gradient: `g` where x >= 0, else `-g`: it is never lost.

    Shape: any -> the same.
    """
    return _Positive.apply(x)
