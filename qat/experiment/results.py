"""The results of a comparison: read from its files, checked once, in the order of the report."""

import json
import math
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from qat.layers import Summary

SCHEMA = 2


@dataclass(frozen=True)
class Epoch:
    """One epoch: losses are means over the images, accuracy is in 0..1, seconds are those of training."""

    epoch: float
    train_loss: float
    val_loss: float
    val_accuracy: float
    seconds: float


@dataclass(frozen=True)
class Scores:
    """Accuracy, 0..1, and loss on the test set after the last epoch."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class RunDifference:
    """The largest absolute differences to the run of the setup `to`; 0.0 where all bits agree."""

    to: str
    losses: float
    parameters: float
    buffers: float


@dataclass(frozen=True)
class Result:
    """One `result.json`, under its own names; a number is finite, infinite or NaN, and never missing.

    `sweep` holds the values that this run has for the swept options; it lacks those that do not concern its
    setup. `gradient_norm` holds the first and the last epoch's, `health` one number for each epoch.
    """

    setup: str
    seed: int
    sweep: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    epochs: list[Epoch]
    test: Scores
    saved_bytes: float
    gradient_norm: dict[str, tuple[float, float]]
    displacement: dict[str, float]
    digests: dict[str, str]
    summary: Summary | None = None
    health: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    difference: RunDifference | None = None


@dataclass(frozen=True)
class Results:
    """The finished runs of a comparison, by setup, then by swept values, then by seed.

    Args:
        runs: at least one.
        sweep: the values of each swept option, in order; a key may join several options by commas.
        meanings: what each setup is, by its name; may be empty.
        equal: pairs of setups that must be equal to the last bit; the first is compared with the second.
        missing: how many runs of the comparison are not finished.
    """

    runs: list[Result]
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)
    equal: list[tuple[str, str]] = field(default_factory=list)
    missing: int = 0


@dataclass(frozen=True)
class _Listing:
    """What `comparison.yaml` says of the comparison that was run last."""

    setups: dict[str, str]
    runs: list[str]
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    equal: list[tuple[str, str]] = field(default_factory=list)


def load_results(out: Path) -> Results:
    """Read the results that `out/comparison.yaml` lists; without this file, every `out/*/result.json`.

    Raises:
        ValueError: there is no result, two of them are the same run, or a file is not what it should be; the
            message names the file.
    """
    out, listing = Path(out), None
    paths = sorted(out.glob("*/result.json"))
    if (out / "comparison.yaml").is_file():
        listing = _read(_Listing, out / "comparison.yaml")
        paths = [out / name / "result.json" for name in listing.runs]
    finished = [path for path in paths if path.is_file()]
    if not finished:
        raise ValueError(f"no results in {out}: expected <run>/result.json there; run a comparison first")
    runs = [read_result(path) for path in finished]
    seen: dict[str, Path] = {}
    for run, path in zip(runs, finished, strict=True):
        other = seen.setdefault(repr((run.setup, sorted(run.sweep.items()), run.seed)), path)
        if other is not path:
            raise ValueError(
                f"{path}: setup {run.setup!r} with seed {run.seed} is already in {other}; remove one of them"
            )
    listing = listing or _Listing({}, [])
    setups = list(dict.fromkeys([*listing.setups, *sorted(run.setup for run in runs)]))
    sweep = _sweep(runs, listing.sweep)

    def place(run: Result) -> tuple[int, list[int], int]:
        points = [values.index(run.sweep[key]) if key in run.sweep else -1 for key, values in sweep.items()]
        return setups.index(run.setup), points, run.seed

    runs.sort(key=place)
    equal = listing.equal or [(run.setup, run.difference.to) for run in runs if run.difference]
    pairs = {
        frozenset(pair): pair for pair in reversed(equal)
    }  # either run of a pair may hold the difference
    return Results(runs, sweep, listing.setups, list(pairs.values())[::-1], len(paths) - len(finished))


def read_result(path: Path) -> Result:
    """Read one `result.json`.

    A null where a number belongs becomes NaN: strict JSON has no other way to write one.

    Raises:
        ValueError: it is not a result of this schema; the message names the file.
        OSError: there is no such file.
    """
    return _read(Result, path)


def _sweep(runs: list[Result], listed: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The values that finished runs have: in their listed order, others after them."""
    sweep: dict[str, list[Any]] = {}
    for key in dict.fromkeys([*listed, *(key for run in runs for key in run.sweep)]):
        found = [run.sweep[key] for run in runs if key in run.sweep]
        found.sort(key=lambda value: (not _is_number(value), value if _is_number(value) else str(value)))
        ordered = [value for value in listed.get(key, []) if value in found]
        for value in found:  # not a set: a joined key has lists as values
            if value not in ordered:
                ordered.append(value)
        if ordered:
            sweep[key] = ordered
    return sweep


def _read(kind: Any, path: Path) -> Any:
    text = path.read_bytes()
    try:
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(
            f"{path}: cannot be read ({' '.join(str(error).split())}); delete it and run the comparison again"
        ) from error
    try:
        if kind is Result and _typed(dict[str, Any], content, "result").get("schema") != SCHEMA:
            version = content.get("versions", {}).get("qat", "of an unknown version")
            raise ValueError(
                f"schema must be {SCHEMA}, got {content.get('schema')!r}, written by qat {version}"
            )
        result = _typed(kind, content, "")
        if kind is Result and not result.epochs:
            raise ValueError("epochs must not be empty")
    except ValueError as error:
        raise ValueError(f"{path}: {error}; run the comparison again") from error
    return result


def _typed(kind: Any, value: Any, name: str) -> Any:
    """The value from JSON or YAML as the annotation `kind` has it."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is UnionType:  # with None, of which there is no other
        return None if value is None else _typed(args[0], value, name)
    if kind is float:
        number = math.nan if value is None else value
        if not _is_number(number):
            raise ValueError(f"{name} must be a number, got {value!r}")
        return float(number)
    plain: Any = dict if is_dataclass(kind) else list if origin is tuple else origin or kind
    if not isinstance(value, plain) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{name or 'content'} must be of type {plain.__name__}, got {value!r}")
    if is_dataclass(kind):
        return _typed_fields(kind, value, name)
    if origin is dict:
        return {_typed(str, key, name): _typed(args[1], item, f"{name}.{key}") for key, item in value.items()}
    if origin is tuple and len(value) != len(args):
        raise ValueError(f"{name} must hold {len(args)} values, got {value!r}")
    if origin in (list, tuple):
        kinds = args if origin is tuple else args * len(value)
        items = zip(kinds, value, strict=True)
        return origin(_typed(each, item, f"{name}[{n}]") for n, (each, item) in enumerate(items))
    return value


def _typed_fields(kind: Any, value: dict[str, Any], name: str) -> Any:
    hints, prefix = get_type_hints(kind), f"{name}." if name else ""
    found = {}
    for each in fields(kind):
        if each.name in value:
            found[each.name] = _typed(hints[each.name], value[each.name], prefix + each.name)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise ValueError(f"{prefix}{each.name} is missing")
    return kind(**found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
