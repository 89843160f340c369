"""Run the setups of a comparison one after another; what is finished is kept."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer, seed_everything
from lightning.pytorch.trainer.states import TrainerStatus
from rich.progress import Progress, TaskID
from torch import Tensor, nn

from qat.data import ImageData
from qat.experiment.difference import difference
from qat.experiment.plan import Run, Settings
from qat.experiment.results import read_result
from qat.experiment.setups import SETUPS, TWINS
from qat.layers import summary
from qat.memory import saved_bytes
from qat.progress import of_a_whole
from qat.training.health import Health
from qat.training.result import SCHEMA, Recorder, digests
from qat.whole_file import write_json


class _Advance(Callback):
    """Moves the progress bar batch by batch; one epoch is one unit."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.progress.advance(self.task, 1 / trainer.num_training_batches)


def prepare(settings: Settings, runs: Sequence[Run]) -> None:
    """Refuse what would not run, and fetch the data, before anything is written.

    Raises:
        ValueError, OSError: options that do not fit the model, missing or damaged data.
    """
    for run in {(run.setup, run.bits): run for run in runs}.values():
        settings.at(run.bits).classifier(SETUPS[run.setup], run.seed)
    data = ImageData(settings.data, settings.data_root, settings.batch_size)
    data.prepare_data()
    data.setup()


def compare(settings: Settings, runs: Sequence[Run]) -> None:
    """Train what is not finished yet and write each run's `result.json` as soon as it ends.

    All setups of a seed start from equal weights and see equal batches in equal order. Call `prepare` first.

    Raises:
        OSError: a file cannot be written.
    """
    for run in runs:
        _adopt(run, settings)
    todo = [run for run in runs if not is_finished(run, settings)]
    if todo:
        _set_aside(runs, settings)
    for run in todo:
        run.folder.mkdir(parents=True, exist_ok=True)
    with Progress(*of_a_whole(), refresh_per_second=4) as progress:
        task = progress.add_task("", total=settings.epochs * len(todo))
        for number, run in enumerate(todo, 1):
            progress.update(task, description=f"run {number} of {len(todo)}: {run}")
            accuracy = _train(run, settings, _Advance(progress, task))
            progress.console.print(f"{run}: test accuracy {100 * accuracy:.1f} %")


def _adopt(run: Run, settings: Settings) -> None:
    """Where this run ended under the name it has with another number of widths, give it its name here."""
    bits = settings.quantization.weight_bits
    if not SETUPS[run.setup].has_bits or run.folder.exists():
        return
    if run.bits is not None:
        other = replace(run, bits=None)
        settings = settings.at(run.bits)
    elif settings.quantization.activation_bits == bits:
        other = replace(run, bits=bits)
    else:
        return
    if is_finished(other, settings):
        other.folder.rename(run.folder)


def _set_aside(runs: Sequence[Run], settings: Settings) -> None:
    """Move runs of other settings or versions to `OUT/earlier/<n>/`: not lost, and not in the same report."""
    out = runs[0].out
    several = any(run.bits is not None for run in runs)
    others = [path.parent for path in out.glob("*/result.json") if not _belongs(path, settings, several)]
    if others:
        earlier = out / "earlier"
        folder = earlier / str(1 + max((int(p.name) for p in earlier.glob("[0-9]*")), default=0))
        folder.mkdir(parents=True)
        for other in others:
            other.rename(folder / other.name)
        print(f"{len(others)} runs of other settings or versions, or broken ones, were moved to {folder}")


def _belongs(path: Path, settings: Settings, several: bool) -> bool:
    run = Run.of(path.parent)
    if run is None or not is_finished(run, settings):
        return False
    return (run.bits is not None) == several or not SETUPS[run.setup].has_bits


def is_finished(run: Run, settings: Settings) -> bool:
    """Whether this run ended with the same settings, seed and versions, and all its files are there."""
    try:
        result = read_result(run.folder / "result.json")
    except (OSError, ValueError):
        return False
    if not all((run.folder / name).is_file() for name in ("final.ckpt", "step_losses.json")):
        return False
    # Through JSON, so that tuples and lists compare equal.
    identity = json.loads(json.dumps(run.identity(settings)))
    return all(getattr(result, key) == value for key, value in identity.items())


def _train(run: Run, settings: Settings, advance: Callback) -> float:
    """Train, test and write the result; the test accuracy in 0..1."""
    seed_everything(run.seed, verbose=False)
    classifier = settings.at(run.bits).classifier(SETUPS[run.setup], run.seed)
    data = ImageData(settings.data, settings.data_root, settings.batch_size, seed=run.seed)
    # The report says how the layers fare; under the true gradient every one of them would be warned of.
    recorder, health = Recorder(), Health(warns=False)
    trainer = Trainer(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        devices=1,
        max_epochs=settings.epochs,
        deterministic=True,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[recorder, advance, health],
    )
    try:
        trainer.fit(classifier, datamodule=data)
        test = trainer.test(classifier, datamodule=data, verbose=False)[0]
    except SystemExit:  # Lightning's way to end after Ctrl-C
        if trainer.state.status == TrainerStatus.INTERRUPTED:
            raise KeyboardInterrupt from None
        raise
    trainer.save_checkpoint(run.folder / "final.ckpt")
    write_json(run.folder / "step_losses.json", recorder.step_losses)
    model = classifier.model.cpu()
    images = next(iter(data.train_dataloader()))[0]
    with classifier.packing():
        kept = saved_bytes(model, images).total
    result = {
        "schema": SCHEMA,
        **run.identity(settings),
        **recorder.result(),
        "test": {"accuracy": test["test_accuracy"], "loss": test["test_loss"]},
        "saved_bytes": kept,
        "digests": digests(model),
        **(_summary(model, images[:2]) if SETUPS[run.setup].has_bits else {}),
        **({"health": health.layers} if health.layers else {}),
    }
    # Written last: a folder with a result.json is a finished run.
    write_json(run.folder / "result.json", result | _against_twin(run, settings, set(recorder.gradient_norm)))
    return test["test_accuracy"]


def _summary(model: nn.Module, images: Tensor) -> dict[str, Any]:
    """What the layers cost, as plain values."""
    found = summary(model, images)
    totals = ("macs", "bit_operations", "float_bit_operations")
    rows = [asdict(row) | {"bit_operations": row.bit_operations} for row in found.rows]
    return {"summary": asdict(found) | {"rows": rows} | {name: getattr(found, name) for name in totals}}


def _against_twin(run: Run, settings: Settings, parameters: set[str]) -> dict[str, Any]:
    """The difference to the run that must be equal, where that one ended first."""
    if run.setup not in TWINS:
        return {}
    twin = replace(run, setup=TWINS[run.setup])
    if not is_finished(twin, settings):
        return {}
    return {"difference": difference(twin.folder, run.folder, parameters)}
