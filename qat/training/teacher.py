"""The trained network that a run learns from."""

from collections.abc import Mapping
from typing import Any

from lightning import LightningModule

from qat.training.ckpt import load_state, read_ckpt, remedy


def load_teacher(build: type[LightningModule], path: str, student: Mapping[str, Any]) -> LightningModule:
    """A classifier of the class `build` from the .ckpt file of its run, in eval mode and without gradients.

    Its images and classes must be those in the hyper-parameters of the student.
    """
    ckpt = read_ckpt("teacher", path)
    try:
        teacher = build(**ckpt["hyper_parameters"] | {"teacher": None})
    except TypeError as error:  # an option that this version does not know
        raise ValueError(f"teacher {path} cannot be built ({remedy(ckpt)}): {error}") from error
    for key in ("input_shape", "classes"):
        if teacher.hparams[key] != student[key]:
            raise ValueError(
                f"teacher must have {key} {student[key]}, got {teacher.hparams[key]} in {path}; "
                "train one on the same data"
            )
    load_state(ckpt, path, teacher, "teacher")
    return teacher.eval().requires_grad_(False)
