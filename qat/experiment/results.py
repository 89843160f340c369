"""The results of a comparison, read from its files and checked."""

import json
import math
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from qat.layers import Summary
from qat.names import one_line
from qat.training.result import SCHEMA


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
    """One `result.json` under its own names; a null where a number belongs is read as NaN.

    `sweep` lacks the swept options that do not concern the setup. `gradient_norm` holds the first and the
    last epoch's, `health` one number for each epoch.
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
    health: dict[str, dict[str, list[float]]] | None = None
    difference: RunDifference | None = None
    class_names: list[str] | None = None


@dataclass(frozen=True)
class Listing:
    """What `comparison.yaml` says of a comparison, in its own order.

    Args:
        setups: the meaning of each setup; may be empty.
        runs: the folders of all runs.
        sweep: the values of each swept option; a key may join several options by commas.
        equal: pairs of setups that must be equal to the last bit; the first is compared with the second.
        against: the setup from which the points of the others are counted.
    """

    setups: dict[str, str]
    runs: list[str]
    sweep: dict[str, list[Any]]
    equal: list[tuple[str, str]]
    against: str | None = None


@dataclass(frozen=True)
class Results:
    """A comparison and its finished runs, at least one: by setup, then by swept values, then by seed."""

    listing: Listing
    runs: list[Result]


def load_results(out: Path) -> Results:
    """Read the results of the finished runs that `out/comparison.yaml` lists.

    Raises:
        ValueError: there is no result, or a file has the wrong content; the message names the file.
    """
    out = Path(out)
    if not (out / "comparison.yaml").is_file():
        raise ValueError(f"no comparison.yaml in {out}; run a comparison first")
    listing: Listing = _read(Listing, out / "comparison.yaml")
    paths = [out / folder / "result.json" for folder in listing.runs]
    runs = [read_result(path) for path in paths if path.is_file()]
    if not runs:
        raise ValueError(f"no results in {out}: none of its runs has a result.json; run the comparison again")

    def place(run: Result) -> tuple[int, list[int], int]:
        points = [values.index(run.sweep[k]) if k in run.sweep else -1 for k, values in listing.sweep.items()]
        return list(listing.setups).index(run.setup), points, run.seed

    try:
        return Results(listing, sorted(runs, key=place))
    except ValueError as error:  # a setup or a swept value that comparison.yaml does not list
        rule = f"{out / 'comparison.yaml'} must list the setups and swept values of its runs"
        raise ValueError(f"{rule}: {error}; run the comparison again") from error


def read_result(path: Path) -> Result:
    """Read one `result.json`.

    Raises:
        ValueError: it is not a result of this schema; the message names the file.
        OSError: the file cannot be read.
    """
    result: Result = _read(Result, path)
    return result


def _read(kind: Any, path: Path) -> Any:
    text = path.read_bytes()
    try:
        plain = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        content = _from_plain(dict[str, Any], plain, "content")
        schema = content.get("schema")
        if kind is Result and schema != SCHEMA:
            version = content.get("versions", {}).get("qat", "of an unknown version")
            raise ValueError(f"schema must be {SCHEMA}, got {schema!r}, written by qat {version}")
        if kind is Result and content.get("epochs") == []:
            raise ValueError("epochs must not be empty")
        return _from_plain(kind, content, "")
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {one_line(error)}; run the comparison again") from error


def _from_plain(kind: Any, value: Any, name: str) -> Any:
    """Build an object of the annotated type `kind` from a value of JSON or YAML."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any or (origin is UnionType and value is None):
        return value
    if origin is UnionType:
        return _from_plain(args[0], value, name)
    value = math.nan if kind is float and value is None else value
    expected: Any = origin or kind
    json_type: Any = {float: int | float, tuple: list}.get(expected, dict if is_dataclass(kind) else expected)
    if not isinstance(value, json_type) or isinstance(value, bool):
        text = "a number" if kind is float else f"of type {json_type.__name__}"
        raise ValueError(f"{name} must be {text}, got {value!r}")
    if is_dataclass(kind):
        hints, prefix = get_type_hints(kind), f"{name}." if name else ""
        required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
        for key in hints:
            if key not in value and key in required:
                raise ValueError(f"{prefix}{key} is missing")
        found = {key: _from_plain(hints[key], value[key], prefix + key) for key in hints if key in value}
        return expected(**found)
    if origin is dict:
        return {str(key): _from_plain(args[1], item, f"{name}.{key}") for key, item in value.items()}
    if origin is tuple and len(value) != len(args):
        raise ValueError(f"{name} must hold {len(args)} values, got {value!r}")
    if origin in (list, tuple):
        kinds = args if origin is tuple else args * len(value)
        return origin(_from_plain(kinds[n], item, f"{name}[{n}]") for n, item in enumerate(value))
    return expected(value)
