"""Which path quantizers take, compiled or eager."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from qat.quantizers import Quantizer


def path_of(quantizer: Quantizer, x: Tensor) -> str:
    """How a quantizer treats this tensor: `compiled` or `eager`."""
    return "compiled" if quantizer.uses_compiled_kernels(x) else "eager"


def paths_in(model: nn.Module, images: Tensor) -> str:
    """Which path the quantizers of a model take: `compiled`, `eager`, or how many are compiled: `12/21`."""
    paths: Counter[str] = Counter()

    def count(module: Quantizer, args: tuple[Any, ...], output: Any) -> None:
        paths[path_of(module, args[0])] += 1

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, Quantizer)]
    try:
        with torch.no_grad():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return next(iter(paths)) if len(paths) == 1 else f"{paths['compiled']}/{paths.total()}"
