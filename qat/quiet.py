"""Hide Lightning's tips and the warnings that do not apply here."""

import logging
import warnings

# The start of the message of each warning.
NOT_APPLICABLE = (
    r"The '\w+' does not have many workers",  # images are in memory: a worker would cost more than it saves
    r"The number of training batches \(\d+\) is smaller than the logging interval",  # logged once an epoch
    r"The dirpath has changed from",  # a resumed run writes to a new folder
    r"GPU available but not used",  # Apple's, which lacks float64, is not used unless asked for
    r"MPS available but not used",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning itself
)


def quiet() -> None:
    """Hide Lightning's log of tips and devices, and its warnings that do not apply to this package.

    The scripts call it; in a notebook, call it before the training.
    """
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns on each machine that has CUDA's tools and no GPU.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    for message in NOT_APPLICABLE:
        warnings.filterwarnings("ignore", message=message)
