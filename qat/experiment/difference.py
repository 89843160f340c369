"""How far two finished runs that should agree are apart."""

import json
import math
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from qat.experiment.plan import TrainingRun
from qat.training.ckpt import read_ckpt
from qat.whole_file import write_json


def complete(runs: list[TrainingRun], out: Path, equal: list[tuple[str, str]]) -> None:
    """Write into finished results what depends on the comparison: swept values, and differences of pairs.

    The difference of a pair, at one seed and at the same swept values, stands in the result of its first
    setup, or in that of the second where the first holds another one.
    """
    finished = {(run.setup, (run.seed, repr(run.sweep))): run for run in runs if run.is_finished(out)}
    before = {run: (out / run.folder / "result.json").read_text("utf-8") for run in finished.values()}
    after = {run: json.loads(text) | {"sweep": run.sweep} for run, text in before.items()}
    for result in after.values():
        result.pop("difference", None)
    for (one, other), ((setup, point), run) in product(equal, finished.items()):
        twin = finished.get((other, point))
        if setup == one and twin:
            apart = difference(out / run.folder, out / twin.folder, set(after[run]["gradient_norm"]))
            holder, to = (twin, one) if "difference" in after[run] else (run, other)
            after[holder]["difference"] = {"to": to, **apart}
    for run, result in after.items():
        if result != json.loads(before[run]):
            write_json(out / run.folder / "result.json", result)


def difference(one: Path, other: Path, parameters: set[str]) -> dict[str, float]:
    """Largest absolute differences between two run folders; 0.0 where they agree to the last bit.

    Returns:
        `losses` over all steps; `parameters`, which are named, and `buffers` of the trained network. NaN
        where a value is NaN in one run alone, infinity where the runs differ in length or keys.
    """
    (losses, state), (other_losses, other_state) = map(_outcome, (one, other))
    keys = state.keys() | other_state.keys()
    parts = {"losses": [_largest(losses, other_losses)]}
    for part, chosen in (("parameters", keys & parameters), ("buffers", keys - parameters)):
        parts[part] = [0.0, *(_largest(state.get(key), other_state.get(key)) for key in chosen)]
    # The maximum of a tensor, unlike max(), keeps a NaN.
    return {part: torch.tensor(each, dtype=torch.float64).max().item() for part, each in parts.items()}


def _outcome(folder: Path) -> tuple[Tensor, dict[str, Tensor]]:
    """The losses of all steps, and the state of the trained network."""
    steps = json.loads((folder / "step_losses.json").read_text(encoding="utf-8"))
    losses = torch.tensor([math.nan if loss is None else loss for loss in steps], dtype=torch.float64)
    state = read_ckpt("final.ckpt", folder / "final.ckpt")["state_dict"]
    return losses, {key.removeprefix("model."): value for key, value in state.items()}


def _largest(a: Tensor | None, b: Tensor | None) -> float:
    if a is None or b is None or a.shape != b.shape:
        return math.inf
    # Equal infinities and NaNs, too: two runs that diverged in the same way agree.
    equal = (a == b) | ((a != a) & (b != b))
    return torch.where(equal, 0.0, (a.double() - b.double()).abs()).max().item() if a.numel() else 0.0
