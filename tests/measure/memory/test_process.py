"""Modes in processes of their own."""

import json
import subprocess
from dataclasses import asdict

import pytest
import torch
from torch import nn

from qat.measure.memory.case import Case
from qat.measure.memory.child import Growth, Task, measure
from qat.measure.memory.modes import BOTH, MODES
from qat.measure.memory.process import growth, pickled
from qat.measure.memory.saved import saved


def test_a_fresh_process_holds_what_was_counted() -> None:
    # Of the process's own caches there are a few MB, whatever the batch.
    case = Case("resnet8", batch=64)
    grown = growth(case, "packed", 64)
    counted = saved(case.build(MODES["packed"]), torch.rand(64, *case.image), packed=True)
    assert counted < grown.held < counted + 8e6
    assert grown.held < grown.peak < 3 * counted


@pytest.mark.parametrize(
    ("code", "stderr", "said"),
    [(1, "Traceback\n  line\nMemoryError: much\n", "MemoryError: much"), (-9, "", "it says nothing; .*")],
)
def test_a_process_that_fails_is_one_line(
    code: int, stderr: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.CompletedProcess([], code, "", stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: ended)
    text = f"^the process that measures 'packed' at batch 8 ended with {code}: {said}; try a smaller batch$"
    with pytest.raises(ChildProcessError, match=text):
        growth(Case("resnet8"), "packed", 8)


def test_a_model_that_cannot_be_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(nn.Module):
        pass

    monkeypatch.setattr(Case, "build", lambda *_: Local())
    with pytest.raises(ValueError, match=r"model resnet20 must be one that torch\.save can write"):
        pickled(Case(), "packed")


def test_the_child_measures_its_task(tmp_path) -> None:
    file = tmp_path / "model.pt"
    torch.save(Case("resnet8").build(MODES[BOTH]), file)
    task = Task(str(file), True, 256, (3, 8, 8), 10, "cpu", 1)
    grown = measure(Task(**json.loads(json.dumps(asdict(task))) | {"image": task.image}))
    assert isinstance(grown, Growth)
    assert grown.peak > 0
