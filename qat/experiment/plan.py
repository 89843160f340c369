"""The runs that a comparison means, each with its options in full and its identity."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from qat.data import resolve_root
from qat.experiment.comparison import Comparison
from qat.experiment.options import resolve
from qat.experiment.results import read_result
from qat.training.ckpt import find_damage
from qat.training.named_parts import source_digests

BOTH_BITS = ("model.quantization.weight_bits", "model.quantization.activation_bits")
FILES = ("final.ckpt", "step_losses.json", "result.json")  # of a finished run, in the order of writing


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """One training: everything that decides its outcome, in plain values that any process can be handed."""

    setup: str
    seed: int
    sweep: dict[str, Any]  # the values that it takes from the sweep, by the key of the YAML
    options: dict[str, Any]  # all of them, in the groups `model`, `data` and `trainer`
    versions: dict[str, str]  # see `qat.training.result.versions`
    sources: dict[str, str] = field(default_factory=dict)  # digests of the user-defined modules' sources

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the outcome, under the names of `result.json`: `settings`, `seed` and `versions`."""
        data = dict(self.options["data"])
        root = data.pop("data_root")
        if data["name"] == "folder":  # it is known by its place alone; other data sets are the same anywhere
            data["data_root"] = str(resolve_root(root).resolve())
        return {"settings": {**self.options, "data": data}, "seed": self.seed, "versions": self.versions}

    @property
    def folder(self) -> str:
        """The name of its folder: `<setup>-seed<k>-<8 hexadecimal digits>`, swept or not.

        The digits are a hash of its identity and of the files that it reads: teacher, start, and the modules
        of user-defined parts.
        """
        identity = self.identity | ({"sources": self.sources} if self.sources else {})
        for name in ("teacher", "start"):  # another file under the same name makes another run
            path = self.options["model"][name]
            if path is not None and Path(path).is_file():
                identity[name] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        return f"{self.setup}-seed{self.seed}-{digest[:8]}"

    def is_finished(self, out: Path) -> bool:
        """Whether its folder in `out` holds all files and a whole result; its swept values do not count."""
        folder = out / self.folder
        try:
            result = read_result(folder / "result.json")
            json.loads((folder / "step_losses.json").read_text(encoding="utf-8"))
            whole = find_damage((folder / "final.ckpt").read_bytes()) is None
        except (OSError, ValueError, BadZipFile):
            return False
        same = all(getattr(result, k) == v for k, v in {"setup": self.setup, **self.identity}.items())
        return same and whole

    def __str__(self) -> str:
        words = [self.setup]
        for key, value in self.sweep.items():
            # Of options that are swept together, the setup may set some itself.
            names = [
                each for each in key.split(", ") if reduce(getitem, each.split("."), self.options) == value
            ]
            if set(names) == set(BOTH_BITS):
                words.append(f"{value} bit{'s' if value != 1 else ''}")
            else:
                words.append(f"{', '.join(name.rpartition('.')[2] for name in names or [key])} {value}")
        return ", ".join([*words, f"seed {self.seed}"])


def plan(comparison: Comparison, versions: Mapping[str, str]) -> list[TrainingRun]:
    """The runs in their order: seed by seed, so that a comparison that is stopped early has whole seeds.

    Runs of one setup that are the same, such as float at several bits, are there once.

    Raises:
        ValueError: a user-defined part cannot be imported, two setups mean the same run, or the two of a pair
            have no run at the same swept values.
    """
    runs: dict[str, TrainingRun] = {}
    owners: dict[str, str] = {}
    points = product(*comparison.sweep.values())
    for seed, point, (name, setup) in product(comparison.seeds, points, comparison.setups.items()):
        options, sweep = dict(comparison.base), {}
        for key, value in zip(comparison.sweep, point, strict=True):
            free = [option for option in key if option not in setup.options]
            options |= dict.fromkeys(free, value)
            if free:
                sweep[", ".join(key)] = value
        full = resolve(options | setup.options)
        try:
            sources = source_digests(full["model"])
        except ValueError as error:
            raise ValueError(f"setup {name}: {error}") from error
        run = TrainingRun(name, seed, sweep, full, dict(versions), sources)
        runs.setdefault(run.folder, run)
        owner = owners.setdefault(json.dumps(run.identity, sort_keys=True), name)
        if owner != name:
            same = f"{owner} and {name} are the same run"
            raise ValueError(f"setups must differ, but {same}; let them differ in an option, or remove one")
    for pair in comparison.equal:
        one, other = ({(r.seed, repr(r.sweep)) for r in runs.values() if r.setup == name} for name in pair)
        if not one & other:
            rule = "equal must hold setups that run at the same swept values, or they are not compared"
            raise ValueError(f"{rule}; got {' and '.join(pair)}: let both take the sweep, or neither")
    return list(runs.values())


def listing(comparison: Comparison, runs: list[TrainingRun]) -> dict[str, Any]:
    """The content of `comparison.yaml`: what the report must know beside the results."""
    return {
        "schema": 2,
        "setups": {name: setup.meaning for name, setup in comparison.setups.items()},
        "sweep": {", ".join(key): values for key, values in comparison.sweep.items()},
        "seeds": comparison.seeds,
        "equal": [list(pair) for pair in comparison.equal],
        "against": comparison.against,
        "runs": [run.folder for run in runs],
    }
