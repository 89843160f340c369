"""The order of the training images: a function of (seed, epoch)."""

from typing import Any

from torch.utils.data import DistributedSampler


def epoch_seed(seed: int) -> int:
    """The generator seed of a run's epoch 0; later epochs add their number.

    torch's sampler seeds with seed + epoch, so epoch 1 of seed 0 would repeat epoch 0 of seed 1. Steps of
    the golden ratio spread the seeds: any two below 1,000 are more than a million epochs apart (Knuth,
    The Art of Computer Programming, 6.4). The result is modulo 2^32, because torch's CPU generator reads 32
    bits.
    """
    return seed * 0x9E3779B1 % 2**32


class EpochSampler(DistributedSampler[int]):
    """Shuffles by (seed, epoch), gives each process its share, and tells the data set the epoch.

    Lightning calls `set_epoch` at the start of each epoch, also in a resumed run, and does not replace a
    `DistributedSampler`, whatever the number of processes.
    """

    def __init__(self, dataset: Any, seed: int, replicas: int = 1, rank: int = 0) -> None:
        super().__init__(dataset, replicas, rank, shuffle=True, seed=epoch_seed(seed))
        self._tell_epoch = dataset.set_epoch

    def set_epoch(self, epoch: int) -> None:
        """Use the order and the augmentation of epoch `epoch` (from 0)."""
        super().set_epoch(epoch)
        self._tell_epoch(epoch)
