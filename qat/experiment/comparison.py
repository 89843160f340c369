"""A comparison as data: what its YAML file says."""

import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from qat.experiment.options import defaults, plain_values
from qat.names import unknown_name
from qat.options import GROUPS, check_seed
from qat.yaml_file import read_yaml

MAIN = Path(__file__).with_name("compare.yaml")  # the main job, which `configs/compare.yaml` repeats
LIBRARY = Path(__file__).with_name("more_setups.yaml")  # setups that any comparison may pick by name
KEYS: dict[str, type] = {
    **dict.fromkeys((*GROUPS, "setups", "sweep"), Mapping),
    **dict.fromkeys(("seeds", "equal"), list),
    "against": str,
}
# A folder's name on any system; `aux.x` is a device on Windows, too.
NAME = re.compile(r"(?!(con|prn|aux|nul|(com|lpt)\d)(\.|$))\w[\w.+-]{0,63}", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Setup:
    """The options by which one setup differs from the base, by dotted name, and in words what it is.

    Raises ValueError for an option that does not exist, or a value that does not fit.
    """

    options: dict[str, Any]
    meaning: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", plain_values(self.options))


@dataclass(frozen=True)
class Comparison:
    """Setups that are trained side by side.

    Args:
        base: options of training that all runs share, by dotted name.
        setups: by name, which is part of a folder's name.
        seeds: one run of each setup for each seed, 0 to 2^32 - 1.
        sweep: the values of each swept option, or of several options that take the same value together. A
            setup's own option wins over the sweep.
        equal: pairs of setups that must agree bit for bit; the first is compared with the second.
        against: the setup against which the report counts the points of the others; None: it does not.

    Raises:
        ValueError: an option does not exist, a value does not fit, a seed is there twice or out of range, a
            pair does not hold two of the setups, or `against` is none of them.
    """

    base: dict[str, Any]
    setups: dict[str, Setup]
    seeds: list[int]
    sweep: dict[tuple[str, ...], list[Any]] = field(default_factory=dict)
    equal: list[tuple[str, str]] = field(default_factory=list)
    against: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", plain_values(self.base))
        object.__setattr__(self, "sweep", _sweep(self.sweep))
        for seed in check_list("seeds", self.seeds):
            check_seed("seeds", seed)
        for pair in self.equal:
            if pair not in permutations(self.setups, 2):
                setups = ", ".join(self.setups)
                raise ValueError(f"equal must hold pairs of two of the setups {setups}; got {pair!r}")
        if self.against is not None and self.against not in self.setups:
            raise unknown_name("against", self.against, self.setups)

    def pick(self, names: Sequence[str]) -> "Comparison":
        """The same comparison with these setups only; those that it lacks come from qat's own files."""
        files = [self, read_comparison(MAIN), read_comparison(LIBRARY)]  # an earlier one wins
        known = ChainMap(*(each.setups for each in files))
        for name in check_list("setups", list(names)):
            if name not in known:
                raise unknown_name("setup", name, known)
        picked = {name: known[name] for name in names}
        # A pair holds only for the setups that its own file means by the two names.
        pairs = [(pair, each.setups) for each in files for pair in each.equal]
        equal = [pair for pair, setups in pairs if all(picked.get(name) == setups[name] for name in pair)]
        against = self.against if self.against in picked else None
        return replace(self, setups=picked, equal=list(dict.fromkeys(equal)), against=against)

    def with_values(self, names: Sequence[str], values: Sequence[Any]) -> "Comparison":
        """The same comparison with these options set together to one value, or swept over several."""
        left = {tuple(name for name in key if name not in names): self.sweep[key] for key in self.sweep}
        sweep = {key: swept for key, swept in left.items() if key}
        if len(values) > 1:
            return replace(self, sweep=sweep | {tuple(names): list(values)})
        return replace(self, base=self.base | plain_values(dict.fromkeys(names, values[0])), sweep=sweep)


def read_comparison(path: str | Path) -> Comparison:
    """Read the YAML file of a comparison; see `parse_comparison`.

    Raises:
        ValueError: it is not such a file; the message names the file.
    """
    content = read_yaml("config", path)
    try:
        return parse_comparison(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse_comparison(content: Any) -> Comparison:
    """A comparison from nested mappings and lists, with the keys that `compare.yaml` explains.

    Raises:
        ValueError: a key or an option is unknown, or a value does not fit.
    """
    if not isinstance(content, Mapping):
        raise ValueError(f"a comparison must be a mapping, got {content!r}")
    for key, value in content.items():
        if key not in KEYS:
            raise unknown_name("key", key, KEYS)
        if not isinstance(value, KEYS[key] | None):
            raise ValueError(f"{key} must be a {KEYS[key].__name__.lower()}, got {value!r}")
    content = {key: value for key, value in content.items() if value is not None}
    check_list("setups", list(content.get("setups", {})))
    base = {group: content[group] for group in GROUPS if group in content}
    setups = {name: _setup(name, options) for name, options in content["setups"].items()}
    equal = [tuple(pair) if isinstance(pair, list) else pair for pair in content.get("equal", [])]
    against = content.get("against")
    return Comparison(base, setups, content.get("seeds", [0]), content.get("sweep", {}), equal, against)


def check_list(what: str, values: Any) -> list[Any]:
    """The same list; a ValueError if it is not a list, is empty, or holds a value twice."""
    if not isinstance(values, list):
        raise ValueError(f"{what} must be a list, got {values!r}")
    if not values:
        raise ValueError(f"{what} must name at least one")
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{what} must differ; got {value!r} twice")
    return values


def _setup(name: Any, options: Any) -> Setup:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        rule = "text for a folder's name on any system: up to 64 letters, digits and _ . + -, not a device of"
        raise ValueError(f"the name of a setup must be {rule} Windows; got {name!r}")
    if not isinstance(options, Mapping | None):
        raise ValueError(f"setup {name} must be a mapping, got {options!r}")
    options = dict(options or {})
    meaning = options.pop("meaning", "")
    if not isinstance(meaning, str):
        raise ValueError(f"setup {name}: meaning must be text, got {meaning!r}")
    try:
        return Setup(options, meaning)
    except ValueError as error:
        raise ValueError(f"setup {name}: {error}") from error


def _sweep(content: Mapping[Any, Any]) -> dict[tuple[str, ...], list[Any]]:
    """The swept values by the names that take them together, which may be one text with commas."""
    sweep: dict[tuple[str, ...], list[Any]] = {}
    for key, values in content.items():
        names = key if isinstance(key, tuple) else tuple(name.strip() for name in str(key).split(","))
        try:
            check_list("options", [*(name for other in sweep for name in other), *names])
            if "" in names:
                raise ValueError("a name is missing beside a comma")
            plain_values({name: values for name in names if name not in defaults()})  # refuses a group
            plain = [plain_values(dict.fromkeys(names, value)) for value in check_list("values", values)]
            sweep[names] = check_list("values", [value[names[0]] for value in plain])
        except ValueError as error:
            raise ValueError(f"sweep of {', '.join(names)}: {error}") from error
    return sweep
