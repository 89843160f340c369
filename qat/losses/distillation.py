"""The distance of a network's logits to those of a teacher."""

from typing import Literal, get_args

from torch import Tensor

from qat.gradients import logsumexp, stop_gradient
from qat.losses.huber import huber_loss, in_float32
from qat.names import unknown_name

DistillationName = Literal["huber", "kl"]


def distillation_loss(
    student: Tensor, teacher: Tensor, kind: DistillationName = "kl", temperature: float = 1.0
) -> Tensor:
    """The distance of the student's logits to the teacher's, which get no gradient.

    `huber` is `huber_loss(student, teacher)`. `kl`, with T = temperature, is the mean over the batch of `T^2
    KL(softmax(teacher / T) || softmax(student / T))`; its gradient with respect to the student is `g T
    (softmax(student / T) - softmax(teacher / T)) / N`. Under autocast both are computed in float32.

    Args:
        student, teacher: logits `(N, C)`; those of the teacher are finite.
        kind: `huber` or `kl`.
        temperature: > 0, for `kl`; 1 suits small CNNs.

    Raises:
        ValueError: the shapes differ, the kind is unknown, or the temperature is not > 0.

    Source: Hinton et al. 2015, "Distilling the knowledge in a neural network", section 2.
    """
    if kind not in get_args(DistillationName):
        raise unknown_name("distillation", kind, get_args(DistillationName))
    if student.shape != teacher.shape:
        shapes = f"{tuple(student.shape)} and {tuple(teacher.shape)}; both give logits (N, C)"
        raise ValueError(f"distillation needs student and teacher of one shape, got {shapes}")
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, got {temperature!r}; the default is 1.0")
    student, teacher = in_float32(student, stop_gradient(teacher))
    if kind == "huber":
        return huber_loss(student, teacher)
    log_q, log_p = (x / temperature - logsumexp(x / temperature, keepdim=True) for x in (student, teacher))
    return temperature**2 * (log_p.exp() * (log_p - log_q)).sum(-1).mean()
