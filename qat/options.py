"""Options in groups: a look at their values, and jsonargparse's messages in one line each.

A line names the option, the rule, the value and the remedy.
"""

import pickle
import re
from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException

from qat.names import one_line, unknown_name

KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list [a, b]",
    "dict": "a mapping {key: value}",
}
UNKNOWN = (
    r"(Group) '(.+)' does not accept option '(.+)'",
    r"(Option) '()(.+)' is not accepted",
    r"(unrecognized arguments): ()--([^\s=]+)",
)
REWORDED = {
    r"^Problems parsing config:": "config is not valid YAML:",
    r"^Unexpected config:": "config must hold groups such as model, data and trainer, got",
    r'^Linked "(.+?)" must be given via "(.+?)"\.': r"\1 follows from \2: set that instead",
    r'^Parser key "(.+?)": File does not exist: (.+)': r"\1 must be a YAML file, but there is none at \2",
    r'^Parser key "(.+?)":': r"\1:",
    r"^argument (?:-\w/)?--(\S+): expected one argument": r"\1 needs a value",
    r"^unrecognized arguments:": "options start with --, got",
}


# What building a run raises where an option, a file or the data does not fit.
BAD_INPUT = (ValueError, OSError, pickle.UnpicklingError, MisconfigurationException)
GROUPS = ("model", "data", "trainer")  # of the options of training


def by_name(
    options: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """The values in nested mappings by dotted name; an option of `defaults` may be a mapping itself."""
    for key, value in options.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and name not in defaults:
            yield from by_name(value, defaults, f"{name}.")
        else:
            yield name, value


def check_place(name: str, value: Any, defaults: Mapping[str, Any]) -> None:
    """Raise ValueError for a value in the place of a group, or null in that of a default that is not null."""
    if any(option.startswith(f"{name}.") for option in defaults):
        raise ValueError(f"{name} must be a group of options, got {value!r}")
    if value is None and defaults.get(name) is not None:
        raise ValueError(f"{name} must not be null; leave it out for its default, {defaults[name]!r}")


def check_seed(name: str, seed: object) -> None:
    """Raise ValueError unless the option `name` is a seed of a run."""
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= int(seed) < 2**32:
        raise ValueError(f"{name} must be 0 to 2^32 - 1, got {seed!r}; any small number will do")


def explain(message: str, options: Mapping[str, str]) -> str:
    """One line for a message of jsonargparse's parser, which may have many.

    `options` holds the help of each option by its name, such as `model.quantization.weight_bits`.
    """
    link = re.match(r"Call to compute_fn of link .*? failed: (.*)", message, re.DOTALL)
    if link:  # an error of this package
        return one_line(link[1])
    for pattern in UNKNOWN:
        unknown = re.search(pattern, message)
        if unknown:
            group, name = unknown[2], unknown[3]
            return str(unknown_name("option", f"{group}.{name}" if group else name, options))
    key = re.match(r'Parser key "(.+?)"(?: element \d+)?:', message)
    # The parser repeats the value for each type that it tries; as it was given, it stands at the end.
    values = (re.search(rf"{word} value: (.*)", message, re.DOTALL) for word in ("Given", "Got"))
    value = next(filter(None, values), None)
    if key and value:
        hint = options.get(key[1], "") if key[1].startswith(("model.", "data.")) else ""
        return _wrong_value(key[1], one_line(value[1]), message[: value.start()], one_line(hint))
    for pattern, better in REWORDED.items():
        message = re.sub(pattern, better, message, flags=re.DOTALL)
    return one_line(message)


def _wrong_value(key: str, value: str, rules: str, hint: str) -> str:
    choices = [c for found in re.findall(r"Literal\[(.*?)\]", rules) for c in re.findall(r"'(.*?)'", found)]
    types = dict.fromkeys(re.findall(r"Expected an? <class '(.*?)'>", rules))
    kinds = [KINDS.get(name, name.rpartition(".")[2]) for name in types if name != "NoneType"]
    if choices and not kinds:
        return f"{key}: {unknown_name('name', value, dict.fromkeys(choices))}"
    kinds += dict.fromkeys(choices)
    if kinds == ["text"]:
        value += "; put the name in quotes"
    rule = f"{key} must be {' or '.join(kinds) or 'of another kind'}, got {value or 'nothing'}"
    return f"{rule} ({hint.rstrip('.')})" if hint else rule
