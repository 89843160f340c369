"""The training loss: the loss of the task, plus the distance to a teacher if there is one."""

import inspect
from collections.abc import Callable
from functools import partial
from math import inf
from numbers import Real
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from qat.losses import DistillationName, Term, WeightedLoss, cross_entropy, distillation_loss, huber_loss
from qat.names import imported, is_import_path, one_line, unknown_name

LossName = Literal["huber", "cross_entropy"]


def one_hot_huber(logits: Tensor, labels: Tensor, delta: float = 1.0) -> Tensor:
    """The Huber loss of the logits `(N, C)` against the one-hot labels `(N,)`; mean over N and C."""
    return huber_loss(logits, F.one_hot(labels, logits.shape[1]).to(logits.dtype), delta)


Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {"huber": one_hot_huber, "cross_entropy": cross_entropy}


def task_loss(loss: LossName | Any, delta: float = 1.0, label_smoothing: float = 0.0) -> Loss:
    """The loss of the task, a function `(logits (N, C), labels (N,)) -> scalar`.

    Args:
        loss: a name in `LOSSES`, such a user-defined function, or its import path.
        delta: of the Huber loss, > 0 and finite; other losses have none.
        label_smoothing: of the cross-entropy, in [0, 1); other losses have none.

    Raises:
        ValueError: there is no such loss, it breaks its contract, an option is out of range or has no effect.
    """
    if (
        isinstance(label_smoothing, bool)
        or not isinstance(label_smoothing, Real)
        or not 0 <= label_smoothing < 1
    ):
        raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing!r}; 0.1 is common")
    if label_smoothing and loss != "cross_entropy":
        rule = (
            "label_smoothing must be left out unless the loss is cross_entropy, the only one with smoothing"
        )
        raise ValueError(f"{rule}; got label_smoothing {label_smoothing} and loss {one_line(loss)}")
    if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 < delta < inf:
        raise ValueError(f"delta must be a number > 0 and finite, got {delta!r}; the default is 1.0")
    if loss == "huber":
        return partial(one_hot_huber, delta=float(delta))
    if delta != 1.0:
        rule = "delta must be left out unless the loss is huber, the only one with a delta"
        raise ValueError(f"{rule}; got delta {delta} and loss {one_line(loss)}")
    if label_smoothing:
        return partial(cross_entropy, label_smoothing=float(label_smoothing))
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]
    if not callable(loss) and not (isinstance(loss, str) and is_import_path(loss)):
        raise unknown_name("loss", loss, LOSSES)
    function: Any = imported("loss", loss) if isinstance(loss, str) else loss
    _try(function)
    return cast(Loss, function)


def _try(loss: Any) -> None:
    """Refuse what does not give a scalar with a gradient for logits and labels, by a call."""
    rule = "loss must be a function (logits (N, C), labels (N,)) -> scalar with a gradient"
    if not callable(loss) or inspect.isclass(loss):
        raise ValueError(f"{rule}, its import path, huber or cross_entropy; got {one_line(repr(loss))}")
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        logits = torch.tensor([[0.5, -0.25], [0.0, 1.0]], device="cpu", dtype=torch.float32)
        try:
            y = loss(logits.requires_grad_(), torch.tensor([0, 1], device="cpu"))
        except (Exception, SystemExit) as error:  # a user-defined function may raise anything
            y = error
    if not isinstance(y, Tensor) or y.shape != () or not y.requires_grad:
        got = f"{type(y).__name__}: {y}" if isinstance(y, BaseException) else repr(y)
        raise ValueError(f"{rule}; {getattr(loss, '__name__', loss)} gave {one_line(got)}")


def training_loss(
    task: Loss, distillation: DistillationName, distillation_weight: float, has_teacher: bool
) -> WeightedLoss:
    """The loss of a training step, with the terms `task(logits, labels)` and `distillation(logits, teacher)`.

    Without a teacher there is no second term; `distillation_weight` is its factor, finite and >= 0.
    """
    if distillation not in get_args(DistillationName):
        raise unknown_name("distillation", distillation, get_args(DistillationName))
    if not 0 <= distillation_weight < inf:
        rule = "distillation_weight must be >= 0 and finite"
        raise ValueError(f"{rule}, got {distillation_weight}; 1 counts as much as the task")
    terms = {"task": Term(task, ("logits", "labels"))}
    if has_teacher:
        distance = partial(distillation_loss, kind=distillation)
        terms["distillation"] = Term(distance, ("logits", "teacher"), distillation_weight, ("logits",))
    return WeightedLoss(terms)
