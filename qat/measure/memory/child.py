"""What runs in a fresh process: a few steps of one mode, and by how much they make the process grow.

It reads a task in JSON from standard input and leaves its answer in JSON beside the model's file. It imports
little, so that it starts soon.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from qat.measure.memory.gauge import held, watched
from qat.measure.memory.trainee import Trainee, batch

STEPS = 2


@dataclass(frozen=True)
class Task:
    """What the process is to measure.

    Args:
        file: of the model, as `torch.save` writes it.
        packed: whether the mode packs.
        size: images a step.
        image: `(C, H, W)`.
        classes: number of logits.
        device: `cpu` or `cuda`.
        threads: that torch may use.
    """

    file: str
    packed: bool
    size: int
    image: tuple[int, ...]
    classes: int
    device: str
    threads: int


@dataclass(frozen=True)
class Growth:
    """Bytes by which the process grew: at most, and between forward and backward."""

    peak: int
    held: int


def measure(task: Task) -> Growth:
    """Take the steps of a task.

    The process is counted from where it holds the model, its optimizer's state and all that a step on two
    images leaves behind; the images and the gradients are part of the growth.
    """
    torch.set_num_threads(task.threads)
    # The file was written by the process that asks.
    model = torch.load(task.file, weights_only=False, map_location=task.device)
    trainee = Trainee(model, task.packed)
    trainee.step(*batch(0, 2, task.image, task.classes, task.device))
    trainee.optimizer.zero_grad()
    before = held(task.device)
    between = 0
    with watched(task.device) as peak:
        for number in range(STEPS):
            trainee.optimizer.zero_grad()
            images, labels = batch(number, task.size, task.image, task.classes, task.device)
            loss = trainee.loss(images, labels)
            between = max(between, held(task.device))
            loss.backward()
            trainee.optimizer.step()
            del images, labels, loss
    return Growth(peak.bytes - before, between - before)


def main() -> None:
    """Answer one task."""
    task = json.loads(sys.stdin.read())
    growth = measure(Task(**task | {"image": tuple(task["image"])}))
    Path(task["file"]).with_suffix(".json").write_text(json.dumps(asdict(growth)), encoding="utf-8")


if __name__ == "__main__":
    main()
