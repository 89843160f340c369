"""Steps of all modes in turn, in one process: how long each takes, and whether it computes the same."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import quantiles

import torch
from torch import Tensor

from qat.measure.memory.case import CLASSES, Case
from qat.measure.memory.modes import FLOAT, MODES
from qat.measure.memory.trainee import Trainee, batch
from qat.quantizers import compile_kernels


@dataclass
class Steps:
    """What the steps of one mode showed.

    Attributes:
        seconds: of each step but the first, which warms up.
        identical: whether losses, gradients and the whole state equalled the twin's after every step, to the
            last bit; None: it has no twin.
    """

    seconds: list[float] = field(default_factory=list)
    identical: bool | None = None


@dataclass(frozen=True)
class Spread:
    """The middle of several values and the bounds of the middle half of them."""

    median: float
    low: float
    high: float


def ratios(steps: Mapping[str, Steps], name: str) -> Spread:
    """Step time of a mode against float's, round by round."""
    pairs = zip(steps[name].seconds, steps[FLOAT].seconds, strict=True)
    low, median, high = quantiles([own / other for own, other in pairs], n=4, method="inclusive")
    return Spread(median, low, high)


def train_in_turn(case: Case, rounds: int, advance: Callable[[str], None]) -> dict[str, Steps]:
    """Train all modes side by side on batches that change, a step of each mode in every round.

    Args:
        case: what is trained.
        rounds: steps of each mode, at least 3; the first is not timed.
        advance: called with the mode's name before each step.
    """
    torch.backends.cudnn.deterministic = True  # else CUDA itself differs from run to run
    trainees = {name: Trainee(case.build(mode), mode.packed) for name, mode in MODES.items()}
    for trainee in trainees.values():
        compile_kernels(trainee.model, case.device)
    steps = {name: Steps(identical=None if mode.twin is None else True) for name, mode in MODES.items()}
    for number in range(rounds):
        images, labels = batch(number, case.batch, tuple(case.image), CLASSES, case.device)
        losses: dict[str, Tensor] = {}
        for name, trainee in trainees.items():
            advance(name)
            torch.manual_seed(number)  # dropout draws the same in every mode
            seconds, losses[name] = _timed(partial(trainee.step, images, labels), case.device)
            if number:
                steps[name].seconds.append(seconds)
        for name, mode in MODES.items():
            if mode.twin is not None:
                own, twin = trainees[name], trainees[mode.twin]
                same = torch.equal(losses[name], losses[mode.twin]) and _agree(own, twin)
                steps[name].identical = bool(steps[name].identical) and same
    return steps


def _timed(step: Callable[[], Tensor], device: str) -> tuple[float, Tensor]:
    _wait(device)
    began = time.perf_counter()
    loss = step()
    _wait(device)
    return time.perf_counter() - began, loss


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _agree(own: Trainee, twin: Trainee) -> bool:
    """Whether gradients and states are equal to the last bit."""
    ours, theirs = own.model.state_dict(), twin.model.state_dict()
    pairs = zip(own.model.parameters(), twin.model.parameters(), strict=True)
    return (
        ours.keys() == theirs.keys()
        and all(torch.equal(ours[key], theirs[key]) for key in ours)
        and all(_equal(a.grad, b.grad) for a, b in pairs)
    )


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b if a is None or b is None else torch.equal(a, b)
