"""How far two finished runs that should agree are apart."""

import json
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from qat.experiment.plan import TrainingRun
from qat.whole_file import write_json


def complete(runs: Sequence[TrainingRun], out: Path, equal: Sequence[tuple[str, str]]) -> None:
    """Write into finished results what depends on the comparison: swept values, and differences of pairs.

    The difference stands in the first run of a pair that holds no other one.

    Args:
        runs: all runs of the comparison.
        out: the folder of their folders.
        equal: pairs of setups that must agree bit for bit, at the same seed and swept values.
    """
    finished = [run for run in runs if run.is_finished(out)]
    before = {run: (out / run.folder / "result.json").read_text("utf-8") for run in finished}
    after = {run: json.loads(text) | {"sweep": run.sweep} for run, text in before.items()}
    for result in after.values():
        result.pop("difference", None)
    twins = {(run.setup, run.seed, repr(run.sweep)): run for run in finished}
    for (one, other), run in product(equal, finished):
        twin = twins.get((other, run.seed, repr(run.sweep)))
        if run.setup == one and twin:
            apart = difference(out / run.folder, out / twin.folder, set(after[run]["gradient_norm"]))
            holder, to = (run, other) if "difference" not in after[run] else (twin, one)
            after[holder]["difference"] = {"to": to, **apart}
    for run, result in after.items():
        if result != json.loads(before[run]):
            write_json(out / run.folder / "result.json", result)


def difference(one: Path, other: Path, parameters: set[str]) -> dict[str, float]:
    """Largest absolute differences between two run folders; 0.0 where they agree to the last bit.

    Args:
        one, other: folders with `final.ckpt` and `step_losses.json`.
        parameters: names of the network's parameters; the other entries of its state are buffers.

    Returns:
        `losses` over all steps, `parameters` and `buffers` of the trained network; NaN where a value is NaN
        in one run and not in the other, infinity where the runs differ in length or keys.
    """
    losses = [_step_losses(folder / "step_losses.json") for folder in (one, other)]
    states = [_network_state(folder / "final.ckpt") for folder in (one, other)]
    largest = {"losses": _largest(*losses)}
    keys = states[0].keys() | states[1].keys()
    for part, chosen in (("parameters", keys & parameters), ("buffers", keys - parameters)):
        each = [0.0] + [_largest(states[0].get(key), states[1].get(key)) for key in chosen]
        largest[part] = torch.tensor(each, dtype=torch.float64).max().item()  # unlike max(), it keeps a NaN
    return largest


def _step_losses(path: Path) -> Tensor:
    steps = json.loads(path.read_text(encoding="utf-8"))
    return torch.tensor([math.nan if loss is None else loss for loss in steps], dtype=torch.float64)


def _network_state(path: Path) -> dict[str, Tensor]:
    state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    return {key.removeprefix("model."): value for key, value in state.items()}


def _largest(a: Tensor | None, b: Tensor | None) -> float:
    if a is None or b is None or a.shape != b.shape:
        return math.inf
    # Equal infinities and NaNs, too: two runs that diverged in the same way agree.
    equal = (a == b) | ((a != a) & (b != b))
    return torch.where(equal, 0.0, (a.double() - b.double()).abs()).max().item() if a.numel() else 0.0
