"""Read a .ckpt file safely, load it into a model, and refuse one that does not fit."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule

from qat.names import one_line
from qat.training.named_parts import check_named_parts

KEYS = ("state_dict", "epoch", "global_step", "hyper_parameters")
RESUME_KEYS = ("optimizer_states", "lr_schedulers", "loops")
FIXED = ("optimizer", "float_epochs", "freeze_epoch", "freeze_batchnorm_epoch")  # a resumed run keeps these


def read_ckpt(argument: str, path: str | Path) -> dict[str, Any]:
    """The content of a .ckpt file, with its tensors on the CPU; raises ValueError unless `fit` wrote it."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"{argument} must be a .ckpt file, but there is none at {path}; give one that fit wrote"
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file of another kind makes the unpickler raise errors of any type
        raise _refusal(argument, path, f"it cannot be read ({type(error).__name__})") from error
    missing = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if missing:
        raise _refusal(argument, path, f"it has no {missing[0]}")
    if "qat_version" not in content:
        wrote = f"{argument} {path} was written by qat 0.1.0 or earlier"
        rule = f"whose .ckpt files qat {version('qat')} does not read"
        raise ValueError(f"{wrote}, {rule}; train the network again, or use that version")
    return dict(content)


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


def load_teacher(build: type[LightningModule], path: str, student: Mapping[str, Any]) -> LightningModule:
    """The frozen classifier of a .ckpt file, in eval mode; its images and classes must be the student's."""
    ckpt = read_ckpt("teacher", path)
    check_named_parts(ckpt, path)
    try:
        teacher = build(**ckpt["hyper_parameters"] | {"teacher": None})
    except (TypeError, ValueError) as error:  # an option that this version does not know, or a wrong value
        raise ValueError(f"teacher {path} cannot be built ({remedy(ckpt)}): {error}") from error
    for key in ("input_shape", "classes"):
        if teacher.hparams[key] != student[key]:
            raise ValueError(
                f"teacher must have {key} {student[key]}, got {teacher.hparams[key]} in {path}; "
                "train one on the same data"
            )
    load_state(ckpt, path, teacher, "teacher")
    return teacher.eval().requires_grad_(False)


def check_resumable(
    ckpt: Mapping[str, Any], path: str | Path, hparams: Mapping[str, Any], max_epochs: int | None
) -> None:
    """Raise ValueError unless a run with these hyper-parameters can be resumed and has epochs left."""
    missing = [key for key in RESUME_KEYS if key not in ckpt]
    if missing:
        raise _refusal("ckpt_path", Path(path), f"it has no {missing[0]}")
    saved = ckpt["hyper_parameters"]
    options = [(key, saved.get(key, hparams[key]), hparams[key]) for key in FIXED]
    # The state does not show all of these: a learned scale has the keys of an observed one.
    for key, value in hparams["quantization"].items():
        if key != "rounding":  # the rounding may change
            options.append((f"quantization.{key}", saved.get("quantization", {}).get(key, value), value))
    for key, before, now in options:
        if before != now:
            raise ValueError(f"model.{key} must be {before}, that of ckpt_path {path}, to go on; got {now}")
    done = ckpt["epoch"] + 1
    if max_epochs is not None and 0 <= max_epochs <= done:
        raise ValueError(
            f"trainer.max_epochs must be above {done}, the epochs that ckpt_path holds, got {max_epochs}; "
            f"to train on, give --trainer.max_epochs {done + 5}"
        )


def _refusal(argument: str, path: Path, why: str) -> ValueError:
    return ValueError(
        f"{argument} must be a .ckpt file, but {path} is not one: {why}; give one that fit wrote"
    )
