"""torch's global state during an export, whatever the caller's is."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

DEVICE_TYPES = ("cpu", "cuda", "mps", "xpu")


@contextmanager
def default_torch_state() -> Iterator[None]:
    """Compute as torch does by default, without gradients: no inference mode, no autocast, float32, the CPU.

    Also a decorator. Afterwards everything, the random state included, is as before.
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        for kind in DEVICE_TYPES:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if device.type != "cpu":
            stack.enter_context(torch.device("cpu"))
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
