"""The seed of the random draws in a training epoch."""


def dropout_seed(seed: int, epoch: int, rank: int) -> int:
    """A generator seed for each epoch of each process, in 0 .. 2^32 - 1: torch's CPU generator reads 32 bits.

    Different odd factors spread the three numbers. The order of the images has seeds of its own.
    """
    return (seed * 0x9E3779B1 + epoch * 0x85EBCA6B + rank * 0xC2B2AE35 + 1) % 2**32
