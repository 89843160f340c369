"""Where a run stands, in a form from which a run goes on: at the start of an epoch, or inside one."""

from typing import Any

from lightning import LightningModule


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
