"""Measure a mode in a process of its own, where nothing of another mode is left."""

import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

from qat.measure.memory.case import CLASSES, Case
from qat.measure.memory.child import Growth, Task
from qat.measure.memory.modes import MODES
from qat.names import one_line

# glibc keeps freed blocks below its threshold, and raises that as it goes: the process would not shrink, and
# look as if it still held them. Other systems ignore the variable.
_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536"}


def pickled(case: Case, name: str) -> bytes:
    """The network of a mode as it is handed to another process.

    Raises:
        ValueError: it cannot be built so, or not be handed over.
    """
    stream = io.BytesIO()
    try:
        torch.save(case.build(MODES[name]), stream)
    except (
        pickle.PicklingError,
        AttributeError,
        TypeError,
    ) as error:  # pickle's words for what it cannot take
        raise ValueError(
            f"model {case.model} must be one that torch.save can write, to be measured in a process of its "
            f"own: {error}"
        ) from error
    return stream.getvalue()


def growth(case: Case, name: str, size: int) -> Growth:
    """How much a fresh process grows in training steps of a mode.

    Args:
        case: what is trained.
        name: of the mode.
        size: images a step.

    Raises:
        ChildProcessError: the process failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.pt"
        file.write_bytes(pickled(case, name))
        packed, threads = MODES[name].packed, torch.get_num_threads()
        _run(name, Task(str(file), packed, size, tuple(case.image), CLASSES, case.device, threads))
        return Growth(**json.loads(file.with_suffix(".json").read_text(encoding="utf-8")))


def _run(name: str, task: Task) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "qat.measure.memory.child"],
        input=json.dumps(asdict(task)),
        env=os.environ | _ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if child.returncode:
        last = one_line((child.stderr.strip().splitlines() or ["it says nothing; out of memory?"])[-1])
        raise ChildProcessError(
            f"the process that measures {name!r} at batch {task.size} ended with {child.returncode}: {last}; "
            "try a smaller batch"
        )
