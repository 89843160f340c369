"""Scales and observers of a user: found by import path, and tried before a network is built with them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from qat.names import imported, is_import_path, one_line, unknown_name
from qat.quantizers.observers import Observer, all_elements, channel_shape
from qat.quantizers.scale import Scale

HIGH = 7  # of the trials


def scale_class(argument: str, scale: Any, known: Iterable[str], axes: Iterable[int | None]) -> type[Scale]:
    """The class of a user-defined scale, given itself or by its import path.

    Args:
        argument: what the messages call it.
        scale: a subclass of `Scale` that is built as `MyScale(high, shape=(), axis=None)`, or its path.
        known: the built-in names, for the message.
        axes: with each of them it is tried; None: one scale for the tensor.

    Raises:
        ValueError: there is no such class, or a scale of it is not float32, > 0 and of its shape.
    """
    found = _found(argument, scale, known)
    if not (isinstance(found, type) and issubclass(found, Scale)):
        rule = f"{argument} must be a built-in name, a subclass of qat.quantizers.Scale or its import path"
        raise ValueError(f"{rule}; got {one_line(repr(found))}")

    def first(x: Tensor, axis: int | None, high: int) -> Tensor:
        built = found(high, shape=channel_shape(x, axis), axis=axis)  # type: ignore[call-arg]
        built.initialize(x)
        built.observe(x)
        scale: Tensor = built(x)
        return scale

    rule = f"{argument} must be built as {found.__name__}(high, shape=(), axis=None) and give a scale"
    _try(f"{rule} that is float32, finite, > 0 and of that shape", first, axes, torch.float32)
    return found


def observer_of(
    argument: str, observer: Any, known: Iterable[str], axes: Iterable[int | None], constant: float | None
) -> Observer:
    """The observer of a user-defined function `(x, axis, high) -> magnitude`, or of its import path.

    `constant` is that of its moving average; the other arguments and the errors are as for `scale_class`.
    """
    found = _found(argument, observer, known)
    rule = f"{argument} must be a built-in name, a function (x, axis, high) -> magnitude or its import path"
    if not callable(found) or isinstance(found, type):
        raise ValueError(f"{rule}; got {one_line(repr(found))}")
    shapes = "a magnitude that is finite, > 0 and of shape (), with axis 0 (O, 1, 1, 1) of a weight"
    _try(f"{argument} must give {shapes}", found, axes)
    name = getattr(found, "__name__", type(found).__name__)
    return Observer(partial(_in_float32, found), all_elements, constant, name=name)


def _found(argument: str, given: Any, known: Iterable[str]) -> Any:
    if not callable(given) and not (isinstance(given, str) and is_import_path(given)):
        raise unknown_name(argument, given, known)
    return imported(argument, given) if isinstance(given, str) else given


def _try(
    rule: str, function: Callable[..., Any], axes: Iterable[int | None], dtype: torch.dtype | None = None
) -> None:
    """Call `function(x, axis, high)` on a small tensor; raise ValueError unless it follows the rule."""
    for axis in axes:
        with torch.inference_mode(False), torch.random.fork_rng(devices=[]), torch.device("cpu"):
            x = torch.tensor([[0.5, -1.0], [0.25, 2.0]], dtype=torch.float32)
            try:
                y = function(x, axis, HIGH)
            except (Exception, SystemExit) as error:  # it runs the user's code
                y = error
        fits = isinstance(y, Tensor) and y.shape == channel_shape(x, axis) and dtype in (None, y.dtype)
        if not (fits and y.is_floating_point() and (y > 0).all() and y.isfinite().all()):
            got = f"{type(y).__name__}: {y}" if isinstance(y, BaseException) else repr(y)
            raise ValueError(f"{rule}; with axis {axis} it gave {one_line(got)}")


def _in_float32(function: Callable[..., Tensor], x: Tensor, axis: int | None, high: int) -> Tensor:
    return function(x.detach(), axis, high).float()
