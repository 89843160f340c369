"""One training of a comparison, and the files that it leaves in its folder."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from lightning import seed_everything
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.trainer.states import TrainerStatus

from qat.experiment.options import build, build_trainer
from qat.experiment.plan import TrainingRun
from qat.layers import summary
from qat.memory import saved_bytes
from qat.quantizers import Quantizer
from qat.training.health import Health
from qat.training.named_parts import source_digests
from qat.training.network import has_quantizers
from qat.training.result import SCHEMA, Recorder, digests
from qat.whole_file import write_json


def train(run: TrainingRun, folder: Path, advance: Callable[[float], None]) -> float:
    """Train and test one run, write its files, and return the test accuracy, 0..1.

    `advance` is called after each training batch with the part of an epoch that it was.

    Raises:
        FloatingPointError: the loss is not finite.
        ValueError, OSError: a file or the data cannot be read or written, or the module of a user-defined
            part is not as it was when the comparison was planned.
        KeyboardInterrupt: stopped with Ctrl-C.
    """
    seed_everything(run.seed, verbose=False)
    for module, digest in source_digests(run.options["model"]).items():
        if run.sources.get(module) != digest:
            rule = f"module {module} must be the same in all processes and until the comparison ends"
            raise ValueError(f"{rule}, but its file differs here; start the comparison again")
    classifier, data = build(run.options, run.seed)
    # The report says how the layers fare; under the true gradient there would be a warning for each of them.
    recorder, health = Recorder(), Health(warns=False)
    progress = LambdaCallback(
        on_train_batch_end=lambda trainer, *_: advance(1 / trainer.num_training_batches)
    )
    watched = [health] if has_quantizers(classifier) else []
    trainer = build_trainer(run.options, [recorder, progress, *watched])
    try:
        trainer.fit(classifier, datamodule=data)
        test = trainer.test(classifier, datamodule=data, verbose=False)[0]
    except SystemExit:  # Lightning's way to end after Ctrl-C
        if trainer.state.status == TrainerStatus.INTERRUPTED:
            raise KeyboardInterrupt from None
        raise
    folder.mkdir(parents=True, exist_ok=True)
    trainer.save_checkpoint(folder / "final.ckpt")
    write_json(folder / "step_losses.json", recorder.step_losses)
    model = classifier.model.cpu()
    images = next(iter(data.train_dataloader()))[0]
    with classifier.packing():
        kept = saved_bytes(model, images).total
    result = {
        "schema": SCHEMA,
        "setup": run.setup,
        "sweep": run.sweep,
        **run.identity,
        "class_names": data.class_names,
        **recorder.result(),
        "test": {"accuracy": test["test_accuracy"], "loss": test["test_loss"]},
        "saved_bytes": kept,
        "digests": digests(model),
    }
    if any(isinstance(module, Quantizer) for module in model.modules()):
        found = summary(model, images[:2])
        totals = ("macs", "bit_operations", "float_bit_operations")
        rows = [asdict(row) | {"bit_operations": row.bit_operations} for row in found.rows]
        result["summary"] = asdict(found) | {"rows": rows} | {name: getattr(found, name) for name in totals}
    if health.layers:
        result["health"] = health.layers
    write_json(folder / "result.json", result)
    return test["test_accuracy"]
