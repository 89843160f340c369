"""NumPy functions, such as a simulator with a NumPy interface, as nodes of the graph."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qat.gradients.control import refuse_second_derivative

Array = np.ndarray[Any, Any]


class _NumpyNode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: "_NumpyFunction", *inputs: Tensor) -> Tensor:
        ctx.function = function
        output = function.run_forward(inputs)
        if function.backward is not None and any(ctx.needs_input_grad):
            ctx.save_for_backward(output, *inputs)
        return output

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.function.run_backward(g, ctx.saved_tensors, ctx.needs_input_grad[1:])


class _NumpyFunction:
    """The two NumPy functions as one of tensors, with checks of their inputs and results.

    A class and not a closure, so that models that hold one can be pickled.
    """

    def __init__(self, forward: Callable[..., Any], backward: Callable[..., Any] | None) -> None:
        self.forward, self.backward = forward, backward
        self.name = f"numpy_function({getattr(forward, '__name__', forward)})"

    def __call__(self, *inputs: Tensor) -> Tensor:
        return _NumpyNode.apply(self, *inputs)

    def __repr__(self) -> str:
        return self.name

    def run_forward(self, inputs: Sequence[Tensor]) -> Tensor:
        for number, x in enumerate(inputs):
            if not isinstance(x, Tensor):
                raise TypeError(f"{self.name}: input {number} must be a tensor, got {type(x).__name__}")
            if x.device != inputs[0].device:
                devices = f"{inputs[0].device} and {x.device}"
                raise ValueError(f"{self.name}: inputs must lie on one device, got {devices}")
        return self._tensor(self.forward(*map(self._array, inputs)), "forward", inputs[0])

    def run_backward(self, g: Tensor, saved: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor | None]:
        """The gradient of each needed input. `saved`: the output and the inputs."""
        if self.backward is None:
            raise RuntimeError(
                f"{self.name} has no backward, but a gradient was asked for; give numpy_function one, "
                "or stop the gradient with stop_gradient"
            )
        inputs = saved[1:]
        result = self.backward(*map(self._array, (g, *saved)))
        arrays = result if isinstance(result, tuple) else (result,)
        if len(arrays) != len(inputs):
            raise ValueError(
                f"{self.name}: backward must return one gradient for each of the {len(inputs)} inputs, "
                f"got {len(arrays)}"
            )
        # torch does not see NumPy's operations: without a refusal a second derivative is silently wrong.
        return [
            refuse_second_derivative(self._gradient(array, x), g, *inputs, name=self.name) if need else None
            for array, x, need in zip(arrays, inputs, needed, strict=True)
        ]

    def _gradient(self, array: Any, x: Tensor) -> Tensor:
        gradient = self._tensor(array, "backward", x)
        if gradient.shape != x.shape:
            raise ValueError(
                f"{self.name}: backward must return a gradient of the input's shape {tuple(x.shape)}, "
                f"got {tuple(gradient.shape)}"
            )
        return gradient

    def _array(self, x: Tensor) -> Array:
        if x.dtype == torch.bfloat16:
            raise TypeError(f"{self.name}: NumPy has no bfloat16; convert the input with .float()")
        # A copy, because autograd does not notice when NumPy code changes a tensor in place. "K" keeps the
        # memory format.
        return x.detach().cpu().numpy().copy(order="K")

    def _tensor(self, array: Any, which: str, like: Tensor) -> Tensor:
        if not isinstance(array, (np.ndarray, np.generic)):
            raise TypeError(f"{self.name}: {which} must return a NumPy array, got {type(array).__name__}")
        # A copy, because a simulator may fill the same array again in the next call.
        tensor = torch.from_numpy(np.array(array))
        if tensor.dtype != like.dtype:
            raise TypeError(
                f"{self.name}: {which} must return {like.dtype} as its input, got {tensor.dtype}; "
                "convert with .astype(x.dtype)"
            )
        return tensor.to(like.device)


def numpy_function(
    forward: Callable[..., Any], backward: Callable[..., Any] | None = None
) -> Callable[..., Tensor]:
    """A function of tensors whose forward and backward are NumPy functions.

    Forward: `forward(*inputs)`, from arrays to one array of the first input's dtype and of any shape.
    Gradient: `backward(g, output, *inputs)`, one array for each input, of its shape and dtype (a tuple if
    there are several; None for an input that needs no gradient, such as integers). Second derivative: always
    refused. Both functions get copies, which they may change.

    Example: a chip that rounds half up, trained with a straight-through gradient.

        round_half_up = numpy_function(lambda x: np.floor(x + x.dtype.type(0.5)), lambda g, y, x: g)
        Quantizer(IntGrid(4), ObservedScale(7, "ema"), rounding=round_half_up)

    Returns:
        A function of tensors on one device. They are copied to the CPU, and the result back to that device.
        It can be pickled if both NumPy functions can. `torch.compile` breaks the graph around it, and an
        exported model would contain its result as a constant.

    Raises:
        RuntimeError: a gradient is needed and there is no backward, or a second derivative is needed.
        TypeError: an array has another dtype, a result is no array, an input is no tensor or is bfloat16.
        ValueError: forward or backward is no function; a gradient has another shape, there is not one for
            each input, or the devices differ.
    """
    for argument, function in (("forward", forward), ("backward", backward or forward)):
        if not callable(function):
            raise ValueError(f"{argument} must be a function of NumPy arrays, got {function!r}; np.rint, say")
    return _NumpyFunction(forward, backward)
