"""A fixed stratified split, and a fixed order in which the classes alternate."""

import torch
from torch import Tensor


def stratified_split(labels: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Ascending indices `(rest, taken)`: a random `fraction` (0..1, exclusive) of each class is taken.

    The same labels always give the same split; the global generator has no influence. A class of two or more
    images has at least one in both parts; a single image stays in the rest.

    Shape: labels int64 `(N,)` -> int64 `(N - M,)` and `(M,)`.
    """
    generator = torch.Generator().manual_seed(0)
    taken = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        count = min(max(1, round(fraction * len(members))), len(members) - 1)
        taken[members[torch.randperm(len(members), generator=generator)[:count]]] = True
    return (~taken).nonzero().flatten(), taken.nonzero().flatten()


def alternating_order(labels: Tensor) -> Tensor:
    """A fixed order in which the classes alternate.

    The first n images hold each class in proportion, and every class if n >= the number of classes. The
    images of a class come in a random order. The same labels always give the same order; the global generator
    has no influence.

    Shape: labels int64 `(N,)` -> int64 `(N,)`, each index once.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(labels), generator=generator)
    place = torch.empty(len(labels), dtype=torch.float64)
    for label in labels.unique():
        members = order[labels[order] == label]
        place[members] = torch.arange(len(members), dtype=torch.float64) / len(members)
    return order[place[order].argsort(stable=True)]
