"""Which images each process reads, and in which order: in training a function of (seed, epoch)."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler


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
        self.skipped = 0  # images at the start of the next epoch that an earlier process has trained on

    def __iter__(self) -> Iterator[int]:
        skipped, self.skipped = self.skipped, 0
        return iter(list(super().__iter__())[skipped:])

    def set_epoch(self, epoch: int) -> None:
        """Use the order and the augmentation of epoch `epoch` (from 0)."""
        super().set_epoch(epoch)
        self._tell_epoch(epoch)


class EvaluationSampler(DistributedSampler[int]):
    """Gives each process its share of the images, in order and each image once.

    `DistributedSampler` itself repeats images until all shares are equal, and so counts some of them twice.
    """

    def __init__(self, dataset: Any, replicas: int, rank: int) -> None:
        super().__init__(dataset, replicas, rank, shuffle=False)
        if len(dataset) < replicas:
            rule = f"evaluation on {replicas} processes needs an image for each"
            raise ValueError(f"{rule}, got {len(dataset)} in all; use at most {len(dataset)} devices")
        self.indices = range(rank, len(dataset), replicas)

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)


class EpochLoader(DataLoader[Any]):
    """Training batches from an `EpochSampler`; a loader that loads a state goes on inside an epoch.

    Lightning asks for the state and loads it. `batches`, the batches of the epoch that are done, is set by
    whoever writes the .ckpt file; the rest decides what those batches were.
    """

    def state_dict(self) -> dict[str, Any]:
        """What decides the batches of an epoch."""
        known = {"batches": 0, "batch_size": self.batch_size, "images": len(self.dataset)}  # type: ignore[arg-type]
        if isinstance(self.sampler, EpochSampler):  # Lightning's `overfit_batches` replaces it
            return {**known, "devices": self.sampler.num_replicas, "seed": self.sampler.seed}
        return {**known, "devices": 1, "seed": None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Skip the first batches of the next epoch; raises ValueError if this loader has other batches."""
        if not state["batches"]:
            return
        if not isinstance(self.sampler, EpochSampler):
            rule = "overfit_batches must be left out to go on inside an epoch"
            raise ValueError(f"{rule}; go on from the end of an epoch, or start again")
        for name, value in self.state_dict().items():
            if name != "batches" and value != state[name]:
                rule = f"{name} must be as before to go on inside an epoch, {state[name]}"
                raise ValueError(f"{rule}; got {value}")
        self.sampler.skipped = state["batches"] * state["batch_size"]
