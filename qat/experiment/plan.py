"""The runs that a comparison means, each with its options in full and its identity."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from qat.data import resolve_root
from qat.experiment.comparison import Comparison
from qat.experiment.options import resolve

BITS = ("model.quantization.weight_bits", "model.quantization.activation_bits")
_FILES = ("teacher", "start")  # options of the model that name a file


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """One training: everything that decides its outcome, in plain values that any process can be handed.

    Args:
        setup: its name.
        seed: 0 to 2^32 - 1.
        sweep: the values that this run takes from the sweep, by the key of the YAML.
        options: all options of training in the groups `model`, `data` and `trainer`.
        versions: of packages and machine, with the number of threads; see `qat.training.result.versions`.
    """

    setup: str
    seed: int
    sweep: dict[str, Any]
    options: dict[str, Any]
    versions: dict[str, str]

    @property
    def settings(self) -> dict[str, Any]:
        """The options that decide the outcome.

        The place of a known data set is not among them; a folder of images is known by its place alone.
        """
        data = dict(self.options["data"])
        root = data.pop("data_root")
        if data["name"] == "folder":
            data["data_root"] = str(resolve_root(root).resolve())
        return {**self.options, "data": data}

    @property
    def record(self) -> dict[str, Any]:
        """The part of `result.json` that is known before the training."""
        names = ("setup", "sweep", "settings", "seed", "versions")
        return {name: getattr(self, name) for name in names}

    @property
    def folder(self) -> str:
        """The name of its folder: `<setup>-seed<k>-<8 hexadecimal digits of its identity>`."""
        identity = {"settings": self.settings, "seed": self.seed, "versions": self.versions}
        for name in _FILES:  # another file under the same name makes another run
            path = self.options["model"][name]
            if path is not None and Path(path).is_file():
                identity[name] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        return f"{self.setup}-seed{self.seed}-{digest[:8]}"

    @property
    def epochs(self) -> int:
        """How many epochs it trains."""
        return int(self.options["trainer"]["max_epochs"])

    def __str__(self) -> str:
        return ", ".join(
            [self.setup, *(_in_words(*item) for item in self.sweep.items()), f"seed {self.seed}"]
        )


def plan(comparison: Comparison, versions: Mapping[str, str]) -> list[TrainingRun]:
    """The runs in their order: seed by seed, so that a comparison that is stopped early has whole seeds.

    Runs of one setup that are the same, such as float at several bits, are there once.

    Args:
        comparison: what to run.
        versions: of the packages and the machine that will train.

    Raises:
        ValueError: two setups mean the same run.
    """
    cells = [
        (name, *_cell(comparison, name, point))
        for point in product(*comparison.sweep.values())
        for name in comparison.setups
    ]
    runs: dict[str, TrainingRun] = {}
    owners: dict[str, str] = {}
    for seed in comparison.seeds:
        for name, sweep, options in cells:
            run = TrainingRun(name, seed, sweep, options, dict(versions))
            runs.setdefault(run.folder, run)
            owner = owners.setdefault(json.dumps([run.settings, seed], sort_keys=True), name)
            if owner != name:
                raise ValueError(
                    f"setups must differ, but {owner} and {name} are the same run; let them differ in an "
                    "option, or remove one"
                )
    return list(runs.values())


def listing(comparison: Comparison, runs: list[TrainingRun]) -> dict[str, Any]:
    """The content of `comparison.yaml`: what the report must know beside the results."""
    return {
        "schema": 2,
        "setups": {name: setup.meaning for name, setup in comparison.setups.items()},
        "sweep": {", ".join(key): values for key, values in comparison.sweep.items()},
        "seeds": comparison.seeds,
        "equal": [list(pair) for pair in comparison.equal],
        "runs": [run.folder for run in runs],
    }


def _cell(
    comparison: Comparison, setup: str, point: tuple[Any, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a setup takes from the sweep at one point, and its options in full."""
    own = comparison.setups[setup].options
    options, taken = dict(comparison.base), {}
    for key, value in zip(comparison.sweep, point, strict=True):
        free = [name for name in key if name not in own]
        options |= dict.fromkeys(free, value)
        if free:
            taken[", ".join(key)] = value
    return taken, resolve(options | own)


def _in_words(key: str, value: Any) -> str:
    if set(key.split(", ")) == set(BITS):
        return f"{value} bit{'s' if value != 1 else ''}"
    return f"{', '.join(name.rpartition('.')[2] for name in key.split(', '))} {value}"
