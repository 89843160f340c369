"""Where a run stands, in a form from which a run goes on: at the start of an epoch, or inside one."""

from typing import Any

import torch
from lightning import LightningModule
from torch.optim.lr_scheduler import LambdaLR

from qat.training.lightning_private import is_inside_step, load_loader_states, set_logged_step


def dropout_seed(seed: int, epoch: int, rank: int, batch: int = 0) -> int:
    """A generator seed for each batch of each process, in 0 .. 2^32 - 1: torch's CPU generator reads 32 bits.

    Different odd factors spread the four numbers. The order of the images has other seeds.
    """
    return (seed * 0x9E3779B1 + epoch * 0x85EBCA6B + rank * 0xC2B2AE35 + batch * 0x27D4EB2F + 1) % 2**32


class ResumableModule(LightningModule):
    """Abstract: a module whose run may stop anywhere, and equals the uninterrupted one when it is resumed.

    Its learning rates are those of `LambdaLR`.

    Attributes:
        seed: decides every random draw of a training step, together with epoch, process and batch.
        stops: whether this process is asked to end the run, see `StopTogether`.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.stops = seed, False
        self._ends = False  # the run, after this optimizer step

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        settle_loops(checkpoint, self)

    def on_train_start(self) -> None:
        load_loader_states(self.trainer)
        # The rate of the next step, of a resumed run too, comes from the schedule of this run.
        for config in self.trainer.lr_scheduler_configs:
            scheduler = config.scheduler
            assert isinstance(scheduler, LambdaLR)
            rates = zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
            for group, (base, factor) in zip(scheduler.optimizer.param_groups, rates, strict=True):
                group["lr"] = base * factor(scheduler.last_epoch)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Dropout depends on seed, epoch, process and batch alone, not on what ran before in this process.
        # `torch.manual_seed` takes long: it writes down the stack for each kind of device that is not in use.
        seed = dropout_seed(self.seed, self.current_epoch, self.global_rank, batch_idx)
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)  # of the process's own device
        set_logged_step(self.trainer, self.global_step)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        # `max_time` ends a run after a whole optimizer step: no file holds the gradients of a part of it.
        ends, waits = self._ends or self.trainer.should_stop, is_inside_step(self.trainer)
        self.trainer.should_stop, self._ends = ends and not waits, ends and waits


def settle_loops(ckpt: dict[str, Any], module: LightningModule) -> None:
    """Rewrite the counters of Lightning's loops in a .ckpt file that is about to be written.

    As Lightning writes them, they depend on the hook that saves, and an epoch in which `max_steps` or
    `max_time` ended the run counts as finished: a resumed run would skip its other batches. Here
    `epoch_progress` counts finished epochs alone, and `batch_progress` the batches of an unfinished one.
    """
    for name in [name for name in ckpt.get("callbacks", ()) if name.startswith("Timer")]:
        del ckpt["callbacks"][name]  # `max_time` is that of a process, and not used up by the one before
    fit = ckpt["loops"]["fit_loop"]
    epochs, batches = fit["epoch_progress"], fit["epoch_loop.batch_progress"]
    started, done = epochs["current"]["started"], batches["current"]["processed"]
    if not started:  # nothing is trained yet, and the module may have no trainer
        return
    trainer = module.trainer
    if done >= trainer.num_training_batches:
        done, finished = 0, started
        _reset_counters(fit["epoch_loop.scheduler_progress"], ("current",))
        _reset_counters(fit["epoch_loop.automatic_optimization.optim_progress"], ("current",))
    else:
        finished = started - 1
    started = finished + bool(done)
    for part in epochs.values():
        part.update(ready=started, started=started, processed=finished, completed=finished)
    total = batches["total"]["processed"]
    batches["total"].update(ready=total, started=total, completed=total)
    batches["current"].update(ready=done, started=done, processed=done, completed=done)
    batches["is_last_batch"] = False
    _reset_counters(fit["epoch_loop.val_loop.batch_progress"], ("current", "total"))
    for state in fit["state_dict"].get("combined_loader", ()):
        state["batches"] = done
    # An optimizer step in the middle of its batches cannot be resumed: its gradients are in no file.
    ckpt["pending_gradients"] = bool(done % trainer.accumulate_grad_batches)


def finished_epochs(ckpt: dict[str, Any]) -> int:
    """The number of epochs that a .ckpt file holds, without an unfinished one."""
    return int(ckpt["loops"]["fit_loop"]["epoch_progress"]["current"]["completed"])


def batches_of_epoch(ckpt: dict[str, Any]) -> int:
    """The number of batches that a .ckpt file holds of an unfinished epoch."""
    return int(ckpt["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]["completed"])


def _reset_counters(progress: dict[str, Any], names: tuple[str, ...]) -> None:
    for name, value in progress.items():
        if name in names:
            value.update(dict.fromkeys(value, 0))
        elif isinstance(value, dict):
            _reset_counters(value, names)
