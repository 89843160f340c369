"""Measure a mode in a process of its own, where nothing of another mode is left."""

import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

from qat.studies.memory.case import CLASSES, Case
from qat.studies.memory.child import Growth, Task
from qat.studies.memory.modes import MODES
from qat.training.messages import one_line

# glibc keeps freed blocks below its threshold, and raises that as it goes: the process would not shrink, and
# look as if it still held them. Other systems ignore the variable.
_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536"}


def growth(case: Case, name: str, size: int) -> Growth:
    """How much a fresh process grows in training steps of a mode.

    Args:
        case: what is trained.
        name: of the mode.
        size: images a step.

    Raises:
        ValueError: the model cannot be handed to another process, or that process failed.
    """
    mode = MODES[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.pt"
        try:
            torch.save(case.build(mode), file)
        except (
            pickle.PicklingError,
            AttributeError,
            TypeError,
        ) as error:  # pickle's words for what it cannot take
            raise ValueError(
                f"model {case.model} must be one that torch.save can write, to be measured in a process of "
                f"its own: {error}"
            ) from error
        task = Task(
            str(file), mode.packed, size, tuple(case.image), CLASSES, case.device, torch.get_num_threads()
        )
        _run(name, task)
        return Growth(**json.loads(file.with_suffix(".json").read_text(encoding="utf-8")))


def _run(name: str, task: Task) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "qat.studies.memory.child"],
        input=json.dumps(asdict(task)),
        env=os.environ | _ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if child.returncode:
        last = one_line((child.stderr.strip().splitlines() or ["it says nothing; out of memory?"])[-1])
        raise ValueError(
            f"the process that measures {name!r} at batch {task.size} ended with {child.returncode}: {last}; "
            "try a smaller batch"
        )
