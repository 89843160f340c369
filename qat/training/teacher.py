"""The network that a run learns from: read from a .ckpt file, and never trained."""

from collections.abc import Mapping
from typing import Any

from lightning import LightningModule

from qat.training.ckpt import read_ckpt


def load_teacher(kind: type[LightningModule], path: str, student: Mapping[str, Any]) -> LightningModule:
    """A classifier from the .ckpt file of its run, in eval mode and without gradients.

    Args:
        kind: the class to build.
        path: of the file.
        student: hyper-parameters of who learns from it.

    Raises:
        ValueError: it is no .ckpt file of `fit`, or its images or classes are others than the student's.
    """
    ckpt = read_ckpt("teacher", path)
    teacher = kind(**ckpt["hyper_parameters"] | {"teacher": None})
    for key in ("input_shape", "classes"):
        if teacher.hparams[key] != student[key]:
            raise ValueError(
                f"teacher must have {key} {student[key]}, got {teacher.hparams[key]} in {path}; "
                "train one on the same data"
            )
    teacher.load_state_dict(ckpt["state_dict"])
    teacher.on_load_checkpoint(ckpt)
    return teacher.eval().requires_grad_(False)
