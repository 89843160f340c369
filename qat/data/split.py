"""A fixed stratified split."""

import torch
from torch import Tensor


def stratified_split(labels: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Indices `(rest, taken)`, ascending: `fraction` (0..1, exclusive) of each class is taken, at random.

    The same labels always give the same split, whatever the global generator. A class of at least two images
    has one on both sides; a single image stays in the rest.

    Shape: labels int64 `(N,)` -> int64 `(N - M,)` and `(M,)`.
    """
    generator = torch.Generator().manual_seed(0)
    taken = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        count = min(max(1, round(fraction * len(members))), len(members) - 1)
        taken[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    return (~taken).nonzero().flatten(), taken.nonzero().flatten()
