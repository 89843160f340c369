"""A .ckpt file: read it without running anything in it, and refuse it before a run starts."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from qat.names import one_line

RESUMED = ("optimizer_states", "lr_schedulers", "loops")
KEYS = ("state_dict", "epoch", "global_step", "hyper_parameters")


def read_ckpt(argument: str, path: str | Path) -> dict[str, Any]:
    """What a .ckpt file of `fit` holds, on the CPU; `argument` is what the user called the path.

    Raises:
        ValueError: there is no such file, or it is not a .ckpt file of `fit`.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"{argument} must be a .ckpt file, but there is none at {path}; give one that fit wrote"
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a foreign file breaks the unpickler in any way it likes
        raise _refusal(argument, path, f"not readable ({type(error).__name__})") from error
    missing = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if missing:
        raise _refusal(argument, path, f"no {missing[0]} in it")
    return dict(content)


def check_fits(ckpt: dict[str, Any], path: str | Path, model: nn.Module) -> None:
    """Load the state of a .ckpt file into `model`, strictly.

    Raises:
        ValueError: it was written with other bits or another architecture.
    """
    remedy = "use the config.yaml of its run"
    try:
        model.load_state_dict(ckpt["state_dict"], strict=True)
    except ValueError as error:
        raise ValueError(
            f"ckpt_path {path} has other bits than this configuration ({remedy}): {error}"
        ) from error
    except RuntimeError as error:  # torch lists each key in a line of its own, after a title
        first = one_line(str(error).partition("\n")[2].partition("\n")[0])
        raise ValueError(
            f"ckpt_path {path} is of another model than this configuration ({remedy}): {first.rstrip('. ')}"
        ) from error


def check_resumable(
    ckpt: dict[str, Any],
    path: str | Path,
    optimizer: str,
    quantization: dict[str, Any],
    phases: dict[str, Any],
    max_epochs: int | None,
) -> None:
    """Ask whether a run can go on from here, and has anything left to do.

    Raises:
        ValueError: it cannot, or has not.
    """
    missing = [key for key in RESUMED if key not in ckpt]
    if missing:
        raise ValueError(
            f"ckpt_path {path} cannot be resumed, there is no {missing[0]} in it; give one that fit wrote"
        )
    trained_by = ckpt["hyper_parameters"].get("optimizer")
    if trained_by != optimizer:
        raise ValueError(
            f"model.optimizer must be {trained_by}, that of ckpt_path {path}, to go on; got {optimizer}"
        )
    # Not all of it shows in the state: a learned scale has the keys of an observed one. The rounding is free.
    for key, value in quantization.items():
        theirs = ckpt["hyper_parameters"].get("quantization", {}).get(key, value)
        if theirs != value and key != "rounding":
            raise ValueError(
                f"model.quantization.{key} must be {theirs}, that of ckpt_path {path}, to go on; got {value}"
            )
    for key, value in phases.items():  # the state is that of a phase, which another plan would not leave
        theirs = ckpt["hyper_parameters"].get(key, value)
        if theirs != value:
            raise ValueError(f"model.{key} must be {theirs}, that of ckpt_path {path}, to go on; got {value}")
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
