"""A comparison as data: what its YAML file says."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from qat.experiment.options import by_name, plain_values
from qat.names import one_line, unknown_name

MAIN = Path(__file__).with_name("compare.yaml")
"""The main job, which `configs/compare.yaml` repeats."""
LIBRARY = Path(__file__).with_name("more_setups.yaml")
"""Setups that any comparison may pick by name, beside those of the main job."""
GROUPS = ("model", "data", "trainer")
KEYS = (*GROUPS, "seeds", "setups", "sweep", "equal")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}


@dataclass(frozen=True)
class Setup:
    """The options by which one setup differs from the base, by dotted name, and in words what it is."""

    options: dict[str, Any]
    meaning: str = ""


@dataclass(frozen=True)
class Comparison:
    """Setups that are trained side by side.

    Args:
        base: options of training that all runs share, by dotted name.
        setups: by name, which is part of a folder's name.
        seeds: one run of each setup for each seed, 0 to 2^32 - 1.
        sweep: the values of each swept option; options that take the same value together are joined in the
            key. A setup's own option wins over the sweep.
        equal: pairs of setups that must agree bit for bit; the first is compared with the second.
    """

    base: dict[str, Any]
    setups: dict[str, Setup]
    seeds: list[int]
    sweep: dict[tuple[str, ...], list[Any]] = field(default_factory=dict)
    equal: list[tuple[str, str]] = field(default_factory=list)

    def pick(self, names: Sequence[str]) -> "Comparison":
        """The same comparison with these setups only; those that it lacks come from qat's own files.

        Raises:
            ValueError: a name is unknown or given twice.
        """
        check_list("setups", names)
        library = [self, read_comparison(MAIN), read_comparison(LIBRARY)]
        setups = {name: setup for each in reversed(library) for name, setup in each.setups.items()}
        for name in names:
            if name not in setups:
                raise unknown_name("setup", name, setups)
        picked = {name: setups[name] for name in names}
        # A pair holds only for the setups that its own file means by the two names.
        pairs = dict.fromkeys(
            pair
            for each in library
            for pair in each.equal
            if all(name in picked and picked[name].options == each.setups[name].options for name in pair)
        )
        return replace(self, setups=picked, equal=list(pairs))

    def with_values(self, names: Sequence[str], values: Sequence[Any]) -> "Comparison":
        """The same comparison with these options set together to one value, or swept over several."""
        left = {tuple(name for name in key if name not in names): self.sweep[key] for key in self.sweep}
        sweep = {key: swept for key, swept in left.items() if key}
        if len(values) > 1:
            return replace(self, sweep=sweep | _sweep({",".join(names): list(values)}))
        return replace(self, base=self.base | plain_values(dict.fromkeys(names, values[0])), sweep=sweep)


def read_comparison(path: str | Path) -> Comparison:
    """Read the YAML file of a comparison; see `parse_comparison`.

    Raises:
        ValueError: it is not such a file; the message names the file.
        OSError: it cannot be read.
    """
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), _UniqueKeys)
        return parse_comparison(content)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {one_line(error)}") from error


def parse_comparison(content: Any) -> Comparison:
    """A comparison from nested mappings and lists.

    Args:
        content: `model`, `data` and `trainer`, options of training as in the YAML of one run; `seeds`, a
            list; `setups`, which maps each name to the options that differ, dotted or nested, and perhaps its
            `meaning`; `sweep`, which maps an option, or several joined by commas, to a list of values;
            `equal`, a list of pairs of setups. `setups` is required.

    Raises:
        ValueError: a key or an option is unknown, or a value does not fit.
    """
    content = _mapping("a comparison", content)
    for key in content:
        if key not in KEYS:
            raise unknown_name("key", key, KEYS)
    if not content.get("setups"):
        raise ValueError("setups must name at least one")
    setups = {name: _setup(name, given) for name, given in _mapping("setups", content["setups"]).items()}
    equal = content.get("equal") or []
    for pair in _list("equal", equal):
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1]:
            raise ValueError(
                f"equal must hold pairs of two setups, such as [checkpointed, ste]; got {pair!r}"
            )
        for name in pair:
            if name not in setups:
                raise unknown_name("setup in equal", name, setups)
    base = by_name({group: content[group] for group in GROUPS if content.get(group) is not None})
    sweep = {} if content.get("sweep") is None else _sweep(content["sweep"])
    return Comparison(
        plain_values(base), setups, check_seeds(content.get("seeds", [0])), sweep, [(a, b) for a, b in equal]
    )


def check_seeds(seeds: Any) -> list[int]:
    """The same seeds.

    Raises:
        ValueError: there is none, one is there twice or is not an integer from 0 to 2^32 - 1.
    """
    for seed in check_list("seeds", seeds):
        if type(seed) is not int or not 0 <= seed < 2**32:
            raise ValueError(f"seeds must be 0 to 2^32 - 1; got {seed}")
    return list(seeds)


def _setup(name: Any, given: Any) -> Setup:
    if not isinstance(name, str):
        raise ValueError(f"setups must have text as names, got {name!r}; put it in quotes")
    # `aux.x` is a device on Windows, too.
    if not re.fullmatch(r"\w[\w.+-]{0,63}", name, re.ASCII) or name.lower().split(".")[0] in _RESERVED:
        raise ValueError(
            "the name of a setup must also be one for a folder on any system: up to 64 letters, digits and "
            f"_ . + -, not a device of Windows; got {name!r}"
        )
    try:
        options = dict(_mapping("it", {} if given is None else given))
        meaning = options.pop("meaning", "")
        if not isinstance(meaning, str):
            raise ValueError(f"meaning must be text, got {meaning!r}")
        return Setup(plain_values(by_name(options)), meaning)
    except ValueError as error:
        raise ValueError(f"setup {name}: {error}") from error


def _sweep(content: Any) -> dict[tuple[str, ...], list[Any]]:
    sweep: dict[tuple[str, ...], list[Any]] = {}
    for key, values in _mapping("sweep", content).items():
        try:
            names = tuple(name.strip() for name in str(key).split(","))
            for name in names:
                by_name({name: None})
                if any(name in other for other in sweep) or names.count(name) > 1:
                    raise ValueError("it is there twice")
            plain = [plain_values(dict.fromkeys(names, value)) for value in _list("values", values)]
            sweep[names] = check_list("values", [value[names[0]] for value in plain])
        except ValueError as error:
            raise ValueError(f"sweep of {key}: {error}") from error
    return sweep


def check_list(what: str, values: Any) -> list[Any]:
    values = _list(what, values)
    if not values:
        raise ValueError(f"{what} must name at least one")
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{what} must differ; got {value!r} twice")
    return values


def _list(what: str, content: Any) -> list[Any]:
    if isinstance(content, str) or not isinstance(content, Sequence):
        raise ValueError(f"{what} must be a list, got {content!r}")
    return list(content)


def _mapping(what: str, content: Any) -> Mapping[Any, Any]:
    if not isinstance(content, Mapping):
        raise ValueError(f"{what} must be a mapping, got {content!r}")
    return content


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that a mapping holds twice; plain YAML keeps the last one in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[Any] = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise ValueError(f"line {key_node.start_mark.line + 1}: {key!r} is there twice")
            seen.append(key)
        return super().construct_mapping(node, deep)
