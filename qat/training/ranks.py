"""What several processes of a run decide together: one that stops alone leaves the others waiting for it."""

import signal
import threading
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, distributed


def is_shared() -> bool:
    """Whether this run has several processes that can talk to each other."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def any_process(first: Tensor, *others: bool) -> list[bool]:
    """Whether each of the flags, a tensor `()` and others, is true in any process; all of them must ask.

    Waits for the device once.
    """
    if not is_shared():
        return [bool(first), *others]
    flags = torch.stack([first.float(), *(first.new_full((), flag, dtype=torch.float) for flag in others)])
    distributed.all_reduce(flags, distributed.ReduceOp.MAX)
    return [bool(flag) for flag in flags.tolist()]


def of_all_processes(value: Any) -> list[Any]:
    """The value of each process, by its number; all of them must ask."""
    if not is_shared():
        return [value]
    values = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


class StopTogether(Callback):
    """Ends a run of several processes in one batch after Ctrl-C or SIGTERM, in all of them at once.

    Lightning stops each process where the signal finds it, while the others wait for its gradients. A second
    signal does the same here. It sets `stops` of the module, whose training steps ask the other processes.
    """

    def __init__(self) -> None:
        self._module: Any = None
        self._handlers: dict[int, Any] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._module = pl_module
        if is_shared() and threading.current_thread() is threading.main_thread() and not self._module.stops:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers.setdefault(number, signal.getsignal(number))
                signal.signal(number, self._stop)

    # Lightning installs its own handlers after the first of these hooks.
    on_sanity_check_start = on_train_start = on_fit_start

    def on_train_end(self, *_: Any) -> None:
        self._restore()

    def on_exception(self, *_: Any) -> None:
        self._restore()

    def _stop(self, *_: Any) -> None:
        self._module.stops = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
