"""The results of finished runs, read back from their files."""

import json
import math
from pathlib import Path
from typing import Any

import yaml

Result = dict[str, Any]  # one result.json
Runs = list[Result]  # the runs of one setup, one for each seed
Width = tuple[int, int]  # bits of weights and of activations

SCHEMA = 2
SETUP_ORDER = ("zero", "ste", "float", "checkpointed", "packed", "packed_checkpointed")
_FIELDS: dict[str, type] = {
    "setup": str,
    "settings": dict,
    "seed": int,
    "versions": dict,
    "epochs": list,
    "test": dict,
    "gradient_norm": dict,
    "displacement": dict,
    "digests": dict,
}
_EPOCH_FIELDS = ("epoch", "train_loss", "val_loss", "val_accuracy", "seconds")


def load_results(out: Path) -> list[Result]:
    """The content of every `*/result.json` under `out`, in the order of the report: by setup, then from the
    widest to the narrowest bits, then by seed.

    A null where a number belongs is read as NaN: strict JSON has no other way to write one.

    Raises:
        ValueError: there is no such file, two files hold the same setup, bits and seed, or one is not a
            result; the message names the file.
    """
    paths = sorted(Path(out).glob("*/result.json"))
    if (Path(out) / "comparison.yaml").is_file():
        listed = yaml.safe_load((Path(out) / "comparison.yaml").read_text(encoding="utf-8"))["runs"]
        paths = [path for path in paths if path.parent.name in listed]
    if not paths:
        raise ValueError(
            f"no results in {out}: expected <setup>-seed<k>/result.json there; run a comparison first"
        )
    found: dict[tuple[str, int, str], Path] = {}
    results = []
    for path in paths:
        result = read_result(path)
        run = (result["setup"], result["seed"], json.dumps(result.get("sweep", {})) + str(width(result)))
        if run in found:
            raise ValueError(
                f"{path}: setup {run[0]!r} with seed {run[1]} is already in {found[run]}; remove one"
            )
        found[run] = path
        results.append(result)
    return sorted(results, key=_rank)


def width(result: Result) -> Width | None:
    """The bits of weights and activations of a run; None for float, and where it is not said."""
    settings = result["settings"].get("model", {}).get("quantization")
    if result["setup"] == "float" or not isinstance(settings, dict):
        return None
    bits = (settings.get("weight_bits"), settings.get("activation_bits"))
    whole = all(type(number) is int and number > 0 for number in bits)
    return bits if whole else None  # type: ignore[return-value] # asked in the line above


def _rank(result: Result) -> tuple[Any, ...]:
    bits = width(result) or (math.inf, math.inf)
    return (*setup_rank(result["setup"]), -bits[0], -bits[1], result["seed"])


def setup_rank(name: str) -> tuple[int, str]:
    """A sort key: the setups in `SETUP_ORDER` first, then the others by name."""
    return (SETUP_ORDER.index(name) if name in SETUP_ORDER else len(SETUP_ORDER), name)


def by_setup(results: list[Result]) -> dict[str, Runs]:
    """The results under their setups' names, in the order of `results`."""
    setups: dict[str, Runs] = {}
    for result in results:
        setups.setdefault(result["setup"], []).append(result)
    return setups


def read_result(path: Path) -> Result:
    """One `result.json`, its numbers checked; raises as `load_results` does, OSError where there is none."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of json and of the decoding alike
        raise ValueError(f"{path}: not a JSON file ({error}); delete it or run that setup again") from error
    if not isinstance(result, dict) or result.get("schema") != SCHEMA:
        found = result.get("schema") if isinstance(result, dict) else result
        raise ValueError(f"{path}: schema must be {SCHEMA}, got {found!r}; run that setup again")
    try:
        return _checked(result)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"no {error.args[0]!r}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: not a run's result: {reason}; run that setup again") from error


def _checked(result: Result) -> Result:
    for name, kind in _FIELDS.items():
        if not isinstance(result[name], kind):
            raise ValueError(f"{name!r} must be a {kind.__name__}, got {result[name]!r}")
    if not result["epochs"]:
        raise ValueError("'epochs' is empty")
    numbers: Result = {
        "epochs": [{field: _number(epoch[field]) for field in _EPOCH_FIELDS} for epoch in result["epochs"]],
        "test": {field: _number(result["test"][field]) for field in ("accuracy", "loss")},
        "saved_bytes": _number(result["saved_bytes"]),
        "displacement": {name: _number(value) for name, value in result["displacement"].items()},
        "gradient_norm": {},
    }
    for name, (first, last) in result["gradient_norm"].items():
        numbers["gradient_norm"][name] = (_number(first), _number(last))
    if result.get("difference") is not None:
        fields = ("losses", "parameters", "buffers")
        numbers["difference"] = {field: _number(result["difference"][field]) for field in fields}
    if result.get("summary") is not None:
        numbers["summary"] = _summary(result["summary"])
    if result.get("health") is not None:
        numbers["health"] = {
            layer: {name: [_number(value) for value in values] for name, values in _mapping(each).items()}
            for layer, each in _mapping(result["health"]).items()
        }
    return result | numbers


def _summary(summary: Result) -> Result:
    row = {"name": str, "kind": str, "rounding": str, "scale": str}
    bits = ("weight_bits", "input_bits", "macs", "bit_operations", "weight_bytes")
    totals = ("macs", "bit_operations", "float_bit_operations", "weight_bytes", "float_bytes")
    return {
        "rows": [
            {name: kind(each[name]) for name, kind in row.items()}
            | {name: _number(each[name]) for name in bits}
            for each in summary["rows"]
        ],
        "left_float": [str(name) for name in summary["left_float"]],
        **{name: _number(summary[name]) for name in totals},
    }


def _mapping(value: Any) -> Result:
    if not isinstance(value, dict):
        raise TypeError(f"expected a mapping, got {value!r}")
    return value


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {value!r}")
    return float(value)
