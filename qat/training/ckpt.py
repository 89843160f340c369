"""Read a .ckpt file safely, load it into a model, and refuse one that does not fit."""

import hashlib
import io
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZipFile

import torch
from lightning import LightningModule, Trainer

from qat.names import one_line
from qat.training.named_parts import check_named_parts
from qat.training.resuming import batches_of_epoch, finished_epochs

Module = TypeVar("Module", bound=LightningModule)
KEYS = ("state_dict", "epoch", "global_step", "hyper_parameters")
RESUME_KEYS = ("optimizer_states", "lr_schedulers", "loops")
RATES = ("learning_rate", "weight_decay", "scale_learning_rate")  # the optimizer's state holds them
# What a finished network does not need.
OF_TRAINING: dict[str, Any] = {"teacher": None, "start": None, "loss": "huber", "delta": 1.0}
# A resumed run has the same.
KEPT = (
    *("optimizer", *RATES, "float_epochs", "freeze_epoch", "freeze_batchnorm_epoch"),
    *("dampening", "freeze_oscillating"),
)


def read_ckpt(argument: str, path: str | Path) -> dict[str, Any]:
    """The content of a .ckpt file, with its tensors on the CPU.

    Raises ValueError unless `fit` wrote it and it is as it was written, by the checksums in it.
    """
    path = Path(path)
    if not path.is_file():
        rule = f"{argument} must be a .ckpt file, but there is none at {path}"
        raise ValueError(f"{rule}; fit writes them into the folder checkpoints of its run")
    try:
        damaged = find_damage(path.read_bytes())
        content: Any = None if damaged else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file of another kind makes the readers raise errors of any type
        raise _refusal(argument, path, f"it cannot be read ({type(error).__name__})") from error
    if damaged:
        raise _refusal(argument, path, f"it is damaged ({damaged} has another checksum)")
    missing = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if missing and isinstance(content, dict) and "state_dict" in content:
        why = f"it has no {missing[0]}, it may be of another LightningModule"
        raise ValueError(f"{argument} {path} was not written by fit: {why}; to export it, give --model")
    if missing:
        raise _refusal(argument, path, f"it has no {missing[0]}")
    if "qat_version" not in content:
        wrote = f"{argument} {path} was written by qat 0.1.0 or earlier, or is of another LightningModule"
        remedy = "train the network again, or give --model to export it"
        raise ValueError(f"{wrote}, which qat {version('qat')} does not read; {remedy}")
    return dict(content)


def sealed(content: bytes) -> bytes:
    """The bytes of a .ckpt file, a zip archive, with their SHA-256 as the comment of the archive.

    The archive's own checksums do not cover the bytes between its entries.
    """
    seal = hashlib.sha256(content).hexdigest().encode()
    return content[:-2] + len(seal).to_bytes(2, "little") + seal  # the last field is the comment's length


def find_damage(content: bytes) -> str | None:
    """What of a .ckpt file is not as it was written: an entry of the archive, or the file; None: nothing.

    Raises BadZipFile or another error if it is no archive.
    """
    with ZipFile(io.BytesIO(content)) as archive:
        if seal := archive.comment:
            return None if sealed(content[: -2 - len(seal)] + bytes(2)) == content else "the file"
        return archive.testzip()


def remedy(ckpt: Mapping[str, Any], same_version: str = "use the config.yaml of its run") -> str:
    """The advice for a .ckpt file that does not fit; names both versions if another qat wrote it."""
    wrote, ours = ckpt["qat_version"], version("qat")
    if wrote == ours:
        return same_version
    return f"it was written by qat {wrote}, this is qat {ours}: use that version, or train the network again"


def load_state(
    ckpt: dict[str, Any], path: str | Path, model: LightningModule, argument: str = "ckpt_path"
) -> None:
    """Load the weights, buffers and phase of a .ckpt file; raises ValueError unless all of it fits."""
    saved = ckpt["hyper_parameters"].get("quantization", {})
    for key, value in model.hparams["quantization"].items():
        before = saved.get(key, value)
        if key != "rounding" and before != value:  # the rounding may change
            rule = f"model.quantization.{key} must be {before}, that of {argument} {path}"
            raise ValueError(f"{rule} ({remedy(ckpt)}); got {value}")
    try:
        model.load_state_dict(ckpt["state_dict"], strict=True)
    except ValueError as error:
        rule = f"{argument} {path} is of another quantization than this configuration"
        raise ValueError(f"{rule} ({remedy(ckpt)}): {error}") from error
    except RuntimeError as error:  # torch writes a title, then a line for each problem
        first = one_line(str(error).partition("\n")[2].partition("\n")[0]).rstrip(". ")
        rule = f"{argument} {path} is of another model than this configuration"
        raise ValueError(f"{rule} ({remedy(ckpt)}): {first}") from error
    model.on_load_checkpoint(ckpt)


def build_from(ckpt: Mapping[str, Any], what: str, build: type[Module], settings: Any) -> Module:
    """The untrained classifier of a .ckpt file; a ValueError, which names `what`, if it cannot be built."""
    try:
        return build(**settings)
    except (TypeError, ValueError) as error:  # an option that this version does not know, or a wrong value
        raise ValueError(f"{what} cannot be built ({remedy(ckpt)}): {error}") from error


def load_teacher(build: type[LightningModule], path: str, student: Mapping[str, Any]) -> LightningModule:
    """The frozen classifier of a .ckpt file, in eval mode; its images and classes must be the student's."""
    ckpt = read_ckpt("teacher", path)
    check_named_parts(ckpt, path, OF_TRAINING)
    teacher = build_from(ckpt, f"teacher {path}", build, ckpt["hyper_parameters"] | OF_TRAINING)
    for key in ("input_shape", "classes"):
        if teacher.hparams[key] != student[key]:
            raise ValueError(
                f"teacher must have {key} {student[key]}, got {teacher.hparams[key]} in {path}; "
                "train one on the same data"
            )
    load_state(ckpt, path, teacher, "teacher")
    return teacher.eval().requires_grad_(False)


def check_resumable(
    ckpt: dict[str, Any], path: str | Path, hparams: Mapping[str, Any], trainer: Trainer
) -> None:
    """Raise ValueError unless a run with these hyper-parameters can be resumed and has work left."""
    missing = [key for key in RESUME_KEYS if key not in ckpt]
    if missing:
        raise _refusal("ckpt_path", Path(path), f"it has no {missing[0]}")
    saved = ckpt["hyper_parameters"]
    for key in KEPT:
        before, now = saved.get(key, hparams[key]), hparams[key]
        if before != now:
            raise ValueError(f"model.{key} must be {before}, that of ckpt_path {path}, to go on; got {now}")
    if ckpt.get("pending_gradients"):
        rule = f"ckpt_path must hold whole optimizer steps, but {path} was saved inside one"
        raise ValueError(f"{rule} (accumulate_grad_batches); give one of another moment, such as last.ckpt")
    done, steps, epochs = finished_epochs(ckpt), ckpt["global_step"], trainer.max_epochs
    if epochs is not None and 0 <= epochs <= done:
        raise ValueError(
            f"trainer.max_epochs must be above {done}, the epochs that ckpt_path holds, got {epochs}; "
            f"to train on, give --trainer.max_epochs {done + 5}"
        )
    if 0 <= trainer.max_steps <= steps:
        raise ValueError(
            f"trainer.max_steps must be above {steps}, the steps that ckpt_path holds, "
            f"got {trainer.max_steps}; to train on, give more"
        )


def check_same_batches(ckpt: dict[str, Any], path: str | Path, loader: Any) -> None:
    """Raise ValueError unless the batches of an epoch that the .ckpt file holds in part are the loader's."""
    if batches_of_epoch(ckpt):
        try:
            for state in ckpt["loops"]["fit_loop"]["state_dict"].get("combined_loader", ()):
                loader.load_state_dict(state)
        except ValueError as error:
            raise ValueError(f"ckpt_path {path} was saved inside an epoch: {error}") from error


def _refusal(argument: str, path: Path, why: str) -> ValueError:
    return ValueError(
        f"{argument} must be a .ckpt file, but {path} is not one: {why}; give one that fit wrote"
    )
