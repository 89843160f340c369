"""What several processes of a run decide together: one that stops alone leaves the others waiting for it."""

import signal
import threading
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import distributed


def is_shared() -> bool:
    """Whether this run has several processes that can talk to each other."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def any_process(flag: bool, device: torch.device) -> bool:
    """Whether the flag is true in any process of the run; all of them must ask."""
    if not is_shared():
        return flag
    shared = torch.tensor(float(flag), device=device)
    distributed.all_reduce(shared, distributed.ReduceOp.MAX)
    return bool(shared)


def of_all_processes(value: Any) -> list[Any]:
    """The value of each process, by its number; all of them must ask."""
    if not is_shared():
        return [value]
    values = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


class StopTogether(Callback):
    """Ends a run of several processes between two batches after Ctrl-C or SIGTERM, in all of them at once.

    Lightning stops each process where the signal finds it, while the others wait for its gradients. A second
    signal does the same here.
    """

    def __init__(self) -> None:
        self._stops = False
        self._handlers: dict[int, Any] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if is_shared() and threading.current_thread() is threading.main_thread() and not self._stops:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers.setdefault(number, signal.getsignal(number))
                signal.signal(number, self._stop)

    # Lightning installs its own handlers after the first of these hooks.
    on_sanity_check_start = on_train_start = on_fit_start

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if is_shared() and any_process(self._stops, pl_module.device):
            raise SystemExit

    def on_train_end(self, *_: Any) -> None:
        self._restore()

    def on_exception(self, *_: Any) -> None:
        self._restore()

    def _stop(self, *_: Any) -> None:
        self._stops = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
