"""Tensors whose elements lie side by side in memory: seen as one row, whatever the order of their axes."""

from torch import Tensor


def is_dense(x: Tensor) -> bool:
    """Whether the elements lie side by side, each once, in whatever order of the axes."""
    covered = 1
    for stride, size in sorted((t, n) for t, n in zip(x.stride(), x.shape, strict=True) if n > 1):
        if stride != covered:
            return False
        covered *= size
    return x.numel() == covered


def flat(x: Tensor) -> Tensor:
    """The elements of a dense tensor in the order in which they are stored. Shape: any -> `(n,)`, a view."""
    return x.as_strided((x.numel(),), (1,))
