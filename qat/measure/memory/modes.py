"""The modes of training that the study compares."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """One row of the table.

    Args:
        twin: the mode whose losses, gradients and state it must equal to the last bit; None: it is one.
        quantized: fake-quantized; else float.
        packed: forward and backward inside `packed_activations`.
        checkpointed: the blocks are `Checkpointed`.
    """

    twin: str | None = None
    quantized: bool = True
    packed: bool = False
    checkpointed: bool = False


FLOAT, PLAIN, BOTH = "float", "QAT plain", "packed + checkpointed"
MODES = {
    FLOAT: Mode(quantized=False),
    "float checkpointed": Mode(FLOAT, quantized=False, checkpointed=True),
    PLAIN: Mode(),
    "packed": Mode(PLAIN, packed=True),
    "checkpointed": Mode(PLAIN, checkpointed=True),
    BOTH: Mode(PLAIN, packed=True, checkpointed=True),
}
