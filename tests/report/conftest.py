"""Results as a comparison leaves them, invented."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Result = dict[str, Any]

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
    "input_bits": 8,
    "rounding": "ste",
    "weight_scale": "observed",
    "per_channel": True,
    "layers": {},
}
# Setup: final accuracy, seconds per epoch, saved bytes.
_TRUTH: dict[str, tuple[float, float, int]] = {
    "zero": (0.113, 3.4, 9_812_000),
    "ste": (0.968, 3.5, 9_812_000),
    "float": (0.979, 3.0, 21_440_000),
    "checkpointed": (0.968, 4.4, 3_021_000),
}
# What a setup loses at each width beside its accuracy at 4 bits.
_LOSS = {
    "ste": {8: -0.008, 4: 0.0, 3: 0.004, 2: 0.051, 1: 0.33},
    "ewgs": {8: -0.004, 4: 0.0, 3: 0.002, 2: 0.011, 1: 0.24},
}


def _noise(*keys: object) -> float:
    """A number in -1..1 that depends on the keys alone."""
    return math.sin(float(sum(ord(c) * (n + 1) ** 2 for n, c in enumerate(repr(keys)))))


def make_result(
    setup: str, seed: int = 0, epochs: int = 8, names: tuple[str, ...] = SMALL, bits: int = 4
) -> Result:
    """One plausible result; `checkpointed` is `ste` again, as it must be."""
    accuracy, seconds, size = _TRUTH.get(setup, (0.972, 3.8, 9_812_000))
    like = "ste" if setup == "checkpointed" else setup
    accuracy += 0.004 * _noise(like, seed) - _LOSS.get(like, {}).get(bits, 0.0)
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
    quantization = (
        None
        if setup == "float"
        else _QUANTIZATION | {"rounding": like, "weight_bits": bits, "activation_bits": bits}
    )
    return {
        "schema": 1,
        "setup": setup,
        "settings": {
            "data": "mnist5k",
            "model": "small_cnn",
            "loss": "huber",
            "epochs": epochs,
            "batch_size": 128,
            "learning_rate": 0.003,
            "quantization": quantization,
            "checkpoint": ["blocks.*"] if setup == "checkpointed" else [],
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
        "digests": {name: f"{like}-{seed}-{bits}-{name}" for name in names},
    } | (
        {"difference": {"losses": 0.0, "parameters": 0.0, "buffers": 0.0}} if setup == "checkpointed" else {}
    )


def four(seeds: int = 3, **arguments: Any) -> list[Result]:
    """The main comparison, in the report's order."""
    return [make_result(setup, seed, **arguments) for setup in _TRUTH for seed in range(seeds)]


def several(bits: tuple[int, ...] = (8, 4, 3, 2, 1), seeds: int = 3, **arguments: Any) -> list[Result]:
    """Five setups at several widths, float once, in the report's order."""
    return [
        make_result(setup, seed, bits=width, **arguments)
        for setup in (*_TRUTH, "ewgs")
        for width in (bits if setup != "float" else bits[:1])
        for seed in range(seeds)
    ]


def write(out: Path, results: list[Result]) -> Path:
    """The results as files under `out`."""
    bits = [(result["settings"]["quantization"] or {}).get("weight_bits") for result in results]
    for result, width in zip(results, bits, strict=True):
        name = f"-w{width}a{width}" if width and len({*bits} - {None}) > 1 else ""
        folder = out / f"{result['setup']}{name}-seed{result['seed']}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return out


@pytest.fixture
def results() -> list[Result]:
    """Four setups with three seeds each."""
    return four()


@pytest.fixture
def widths_results() -> list[Result]:
    """Five setups at five widths with three seeds each."""
    return several()


@pytest.fixture(scope="session")
def several_of() -> Callable[..., list[Result]]:
    """`several`, for other widths, seeds, epochs and parameters."""
    return several


@pytest.fixture(scope="session")
def results_of() -> Callable[..., list[Result]]:
    """`four`, for other numbers of seeds, epochs and parameters."""
    return four


@pytest.fixture(scope="session")
def result_of() -> Callable[..., Result]:
    """`make_result`, for one run."""
    return make_result


@pytest.fixture(scope="session")
def write_results() -> Callable[[Path, list[Result]], Path]:
    """`write`."""
    return write


@pytest.fixture(scope="session")
def long_names() -> tuple[str, ...]:
    """The parameters of a long network."""
    return LONG


@pytest.fixture
def changed(results: list[Result]) -> Callable[..., list[Result]]:
    """The four setups with the test accuracies given by setup, a list with a value for each seed."""

    def change(**accuracies: list[float]) -> list[Result]:
        found = copy.deepcopy(results)
        for result in found:
            if result["setup"] in accuracies:
                result["test"]["accuracy"] = accuracies[result["setup"]][result["seed"]]
        return found

    return change
