"""Keeps Lightning's advertising and the warnings that do not apply here off the screen."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# One entry for each warning, by the start of its message.
NOT_APPLICABLE = (
    r"The '\w+' does not have many workers",  # images lie in memory: a worker would cost more than it saves
    r"The number of training batches \(\d+\) is smaller than the logging interval",  # logged once an epoch
    r"The dirpath has changed from",  # a resumed run writes into a folder of its own
    r"GPU available but not used",  # Apple's, which lacks float64, is not used unless asked for
    r"MPS available but not used",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning itself
)


def quiet() -> None:
    """Silence Lightning's informative log (tips, device lists) and the warnings above."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns of every machine that has CUDA's tools, but no GPU.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    for message in NOT_APPLICABLE:
        warnings.filterwarnings("ignore", message=message)


@contextmanager
def logs_shown() -> Iterator[None]:
    """Inside it what this package logs is a line each on stderr: kernels in use, ailing layers."""
    logger, handler = logging.getLogger("qat"), logging.StreamHandler()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
