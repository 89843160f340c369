"""Which path quantizers take, compiled or eager, and how to do without the compiler."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from qat.quantizers import Quantizer, kernels


def path_of(x: Tensor) -> str:
    """How a quantizer treats this tensor: `compiled` or `eager`."""
    ask: Callable[[Tensor], str] | None = getattr(kernels, "path", None)
    return "eager" if ask is None else ask(x)


@contextmanager
def without_compiler() -> Iterator[None]:
    """What quantizers do inside it they do without a compiler, as with QAT_COMPILE=0."""
    before = os.environ.get("QAT_COMPILE")
    os.environ["QAT_COMPILE"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["QAT_COMPILE"]
        else:
            os.environ["QAT_COMPILE"] = before


def paths_in(model: nn.Module, images: Tensor) -> str:
    """Which path the quantizers of a model take: `compiled`, `eager`, or how many are compiled: `12/21`."""
    paths: Counter[str] = Counter()

    def count(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        paths[path_of(args[0])] += 1

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, Quantizer)]
    try:
        with torch.no_grad():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return next(iter(paths)) if len(paths) == 1 else f"{paths['compiled']}/{paths.total()}"
