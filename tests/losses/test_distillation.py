"""Distillation: the student learns, the teacher does not."""

import pytest
import torch
import torch.nn.functional as F

from qat.losses import distillation_loss, huber_loss


@pytest.mark.parametrize("kind", ["huber", "kl"])
def test_the_teacher_gets_no_gradient(kind: str) -> None:
    student, teacher = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    distillation_loss(student, teacher, kind).backward()
    assert teacher.grad is None
    assert student.grad is not None
    assert student.grad.abs().sum() > 0


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_kl_equals_torch(temperature: float) -> None:
    torch.manual_seed(0)
    student, teacher = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ours = distillation_loss(student, teacher, "kl", temperature)
    logs = [F.log_softmax(x / temperature, 1) for x in (student, teacher.detach())]
    theirs = temperature**2 * F.kl_div(*logs, reduction="batchmean", log_target=True)
    torch.testing.assert_close(ours, theirs)
    (a,), (b,) = torch.autograd.grad(ours, student), torch.autograd.grad(theirs, student)
    torch.testing.assert_close(a, b)
    closed = temperature * (F.softmax(student / temperature, 1) - F.softmax(teacher / temperature, 1)) / 3
    torch.testing.assert_close(a, closed)


def test_huber_is_the_huber_loss() -> None:
    student, teacher = torch.randn(3, 4), torch.randn(3, 4)
    assert torch.equal(distillation_loss(student, teacher, "huber"), huber_loss(student, teacher))


def test_equal_logits_cost_nothing() -> None:
    x = torch.randn(3, 4)
    for kind in ("huber", "kl"):
        assert distillation_loss(x, x, kind).item() == 0


def test_refused() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="unknown distillation 'kll'; nearest: kl"):
        distillation_loss(x, x, "kll")
    with pytest.raises(ValueError, match=r"one shape, got \(2, 3\) and \(2, 4\)"):
        distillation_loss(x, torch.zeros(2, 4))
    with pytest.raises(ValueError, match="temperature must be > 0, got 0"):
        distillation_loss(x, x, "kl", 0)
