"""Invented results, as a comparison leaves them."""

import copy
import json
import math
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from qat.experiment.results import load_results
from qat.report.groups import Groups, group

Content = dict[str, Any]  # of a result.json

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
RATE = "model.learning_rate"
SMALL = (
    *(f"blocks.{n}.{name}" for n in range(4) for name in ("conv.weight", "bn.weight", "bn.bias")),
    "fc.weight",
    "fc.bias",
)
LONG = (
    *(
        f"layer{stage}.{block}.{name}"
        for stage in range(1, 5)
        for block in range(3)
        for name in ("conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias")
    ),
    "fc.weight",
    "fc.bias",
)
_QUANTIZATION = {
    "weight_bits": 4,
    "activation_bits": 4,
    "first_last_bits": 8,
    "rounding": "ste",
    "layers": {},
}
# Setup: final accuracy, seconds per epoch, saved bytes.
_TRUTH: dict[str, tuple[float, float, int]] = {
    "zero": (0.113, 3.4, 9_812_000),
    "ste": (0.968, 3.5, 9_812_000),
    "float": (0.979, 3.0, 21_440_000),
    "checkpointed": (0.968, 4.4, 3_021_000),
}
FOUR = tuple(_TRUTH)
_LOST_AT = {8: -0.004, 4: 0.0, 3: 0.004, 2: 0.051, 1: 0.33}  # bits: what is lost beside the accuracy at 4


def _noise(*keys: object) -> float:
    """A number in -1..1 that depends on the keys alone."""
    return math.sin(float(sum(ord(c) * (n + 1) ** 2 for n, c in enumerate(repr(keys)))))


def make_result(
    setup: str, seed: int = 0, sweep: Content | None = None, epochs: int = 8, names: Sequence[str] = SMALL
) -> Content:
    """One plausible result; `checkpointed` is `ste` again, as it must be."""
    sweep = {} if setup == "float" and sweep and BITS in sweep and len(sweep) == 1 else sweep or {}
    bits, rate = sweep.get(BITS, 4), sweep.get(RATE, 0.003)
    accuracy, seconds, size = _TRUTH.get(setup, (0.972 + 0.01 * _noise(setup), 3.8, 9_812_000))
    like = "ste" if setup == "checkpointed" else setup
    accuracy += 0.004 * _noise(like, seed) - (0 if setup in ("zero", "float") else _LOST_AT.get(bits, 0.0))
    accuracy -= 0.03 * math.log10(rate / 0.003) ** 2
    log = []
    for epoch in range(epochs):
        left = math.exp(-0.9 * epoch) * (0.02 if setup == "zero" else 0.25)
        loss = 0.047 if setup == "zero" else 0.003 + 0.05 * (1 - accuracy) + 0.12 * left
        log.append(
            {
                "epoch": epoch,
                "train_loss": loss * (0.9 - 0.04 * epoch) * (1 + 0.02 * _noise(like, seed, epoch, "t")),
                "val_loss": loss * (1 + 0.05 * _noise(like, seed, epoch)),
                "val_accuracy": max(accuracy - left + 0.002 * _noise(like, seed, epoch, "a"), 0.0),
                "seconds": seconds * (1 + 0.03 * _noise(setup, seed, epoch, "s")),
            }
        )
    still = {name: setup == "zero" and name != "fc.bias" for name in names}
    size_of = {name: 10 ** (1.2 * _noise(name)) for name in names}
    quantization = _QUANTIZATION | {"rounding": like, "weight_bits": bits, "activation_bits": bits}
    result = {
        "schema": 2,
        "setup": setup,
        "sweep": sweep,
        "settings": {
            "model": {
                "name": "small_cnn",
                "loss": "huber",
                "learning_rate": rate,
                "quantization": None if setup == "float" else quantization,
                "checkpoint": ["blocks.*"] if setup == "checkpointed" else [],
            },
            "data": {"name": "mnist5k", "batch_size": 128},
            "trainer": {"max_epochs": epochs},
        },
        "seed": seed,
        "versions": {
            "qat": "0.1.0",
            "torch": "2.14.1",
            "lightning": "2.6.6",
            "python": "3.11.7",
            "machine": "x86_64",
        },
        "epochs": log,
        "test": {"accuracy": round(accuracy, 4), "loss": log[-1]["val_loss"]},
        "saved_bytes": size,
        "gradient_norm": {
            name: [0.0, 0.0]
            if still[name]
            else [0.03 * size_of[name], 0.004 * size_of[name] * (1 + 0.3 * _noise(like, name, seed))]
            for name in names
        },
        "displacement": {
            name: 0.0 if still[name] else size_of[name] * (1.3 + 0.4 * _noise(like, name, seed, "d"))
            for name in names
        },
        "digests": {name: f"{like}-{seed}-{sorted(sweep.items())}-{name}" for name in names},
    }
    if setup == "checkpointed":
        result["difference"] = {"to": "ste", "losses": 0.0, "parameters": 0.0, "buffers": 0.0}
    return result


def make_results(
    setups: Sequence[str] = FOUR, seeds: int = 3, sweep: dict[str, list[Any]] | None = None, **arguments: Any
) -> list[Content]:
    """The runs of a comparison in the report's order; float is not swept over bits alone."""
    points = [dict(zip(sweep or {}, values, strict=True)) for values in product(*(sweep or {}).values())]
    found: list[Content] = []
    for setup, point, seed in product(setups, points, range(seeds)):
        result = make_result(setup, seed, point, **arguments)
        if result not in found:
            found.append(result)
    return found


def listing(results: list[Content], folders: list[str]) -> Content:
    """What `comparison.yaml` says of these runs."""
    setups = dict.fromkeys(result["setup"] for result in results)
    sweep: dict[str, list[Any]] = {}
    for key, value in ((key, value) for result in results for key, value in result["sweep"].items()):
        if value not in sweep.setdefault(key, []):
            sweep[key].append(value)
    equal = [["checkpointed", "ste"]] if {"checkpointed", "ste"} <= setups.keys() else []
    meanings = dict.fromkeys(setups, "")
    seeds = sorted({result["seed"] for result in results if isinstance(result["seed"], int)})
    return {
        "schema": 2,
        "setups": meanings,
        "sweep": sweep,
        "seeds": seeds,
        "equal": equal,
        "runs": folders,
    }


def write(out: Path, results: list[Content]) -> Path:
    """Write the results and `comparison.yaml` under `out`."""
    folders = [f"{result['setup']}-seed{result['seed']}-{n:08x}" for n, result in enumerate(results)]
    for result, folder in zip(results, folders, strict=True):
        (out / folder).mkdir(parents=True)
        (out / folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    text = yaml.safe_dump(listing(results, folders), sort_keys=False)
    (out / "comparison.yaml").write_text(text, encoding="utf-8")
    return out


@pytest.fixture
def results() -> list[Content]:
    """Four setups with three seeds each."""
    return make_results()


@pytest.fixture
def bits_results() -> list[Content]:
    """Five setups at five widths with three seeds each; float has no bits."""
    return make_results((*FOUR, "ewgs"), sweep={BITS: [8, 4, 3, 2, 1]})


@pytest.fixture(scope="session")
def results_of() -> Callable[..., list[Content]]:
    """`make_results`."""
    return make_results


@pytest.fixture(scope="session")
def result_of() -> Callable[..., Content]:
    """`make_result`."""
    return make_result


@pytest.fixture(scope="session")
def write_results() -> Callable[[Path, list[Content]], Path]:
    """`write`."""
    return write


@pytest.fixture
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Content]], Groups]:
    """The groups of results, read back from their files."""

    def read(results: list[Content]) -> Groups:
        return group(load_results(write(tmp_path_factory.mktemp("out"), results)))

    return read


@pytest.fixture
def changed(results: list[Content]) -> Callable[..., list[Content]]:
    """The four setups with the test accuracies given by setup, a list with a value for each seed."""

    def change(**accuracies: list[float]) -> list[Content]:
        found = copy.deepcopy(results)
        for result in found:
            if result["setup"] in accuracies:
                result["test"]["accuracy"] = accuracies[result["setup"]][result["seed"]]
        return found

    return change


@pytest.fixture(scope="session")
def layer_costs() -> Callable[[int], Content]:
    """A summary of one layer whose weights have so many bits."""

    def make(bits: int) -> Content:
        row = {"name": "fc", "kind": "QuantLinear", "rounding": "ste", "scale": "observed/learned"}
        row |= {"weight_bits": bits, "input_bits": 32, "macs": 1000}
        size = {"weight_bytes": 125 * bits, "float_bytes": 4000}
        return {"rows": [row | size], "left_float": {"fc": "its input has 32 bits"}, "not_run": [], **size}

    return make


@pytest.fixture(scope="session")
def layer_health() -> Callable[[], Content]:
    """The health of a layer, as high as goes without a mark."""
    shares = {"clipped": [0.5, 0.1], "unchanged": [0.9999], "oscillating": [0.2]}
    return lambda: shares | {"weight_scale": [0.0, 0.5], "activation_scale": [0.25]}


@pytest.fixture(scope="session")
def long_names() -> tuple[str, ...]:
    """The parameters of a long network."""
    return LONG
