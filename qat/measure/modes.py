"""The modes of training that are measured, by name."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Mode:
    """How a network trains."""

    quantized: bool = True  # with fake-quantized weights and activations, not in float
    learned: bool = False  # all scales are learned, whatever the workload says
    packed: bool = False  # saved activations are kept as packed codes
    checkpointed: bool = False  # blocks are recomputed in the backward
    compiled: bool = False  # the network is compiled by `torch.compile`, without a graph break
    channels_last: bool = False  # the memory format of weights and images
    eager_kernels: bool = False  # quantizers run without compiled kernels, as with QAT_COMPILE=0


FLOAT, FLOAT_COMPILED = "float", "float, compiled"
QAT, QAT_COMPILED, QAT_LEARNED = "qat", "qat, compiled", "qat, learned scales"
PACKED, PACKED_CHECKPOINTED = "qat, packed", "qat, packed, checkpointed"
MODES = {
    FLOAT: Mode(quantized=False),
    "float, checkpointed": Mode(quantized=False, checkpointed=True),
    FLOAT_COMPILED: Mode(quantized=False, compiled=True),
    "float, channels_last": Mode(quantized=False, channels_last=True),
    QAT: Mode(),
    "qat, QAT_COMPILE=0": Mode(eager_kernels=True),
    QAT_COMPILED: Mode(compiled=True),
    "qat, channels_last": Mode(channels_last=True),
    PACKED: Mode(packed=True),
    "qat, checkpointed": Mode(checkpointed=True),
    PACKED_CHECKPOINTED: Mode(packed=True, checkpointed=True),
    QAT_LEARNED: Mode(learned=True),
}


def name_of(mode: Mode) -> str:
    """The name of a mode in `MODES`."""
    return next(name for name, other in MODES.items() if other == mode)


def reference_of(name: str) -> str | None:
    """The mode whose losses, gradients and state a packed or checkpointed mode equals to the last bit."""
    reference = name_of(replace(MODES[name], packed=False, checkpointed=False))
    return None if reference == name else reference


MEMORY_MODES = tuple(name for name in MODES if (reference_of(name) or name) in (FLOAT, QAT))
"""The modes of the memory study: those that differ in what they save for the backward."""
