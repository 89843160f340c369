"""The options of a verb, derived from the dataclass that takes them."""

from dataclasses import fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from docstring_parser import parse
from jsonargparse import ArgumentParser, Namespace

T = TypeVar("T")


def add_options(parser: ArgumentParser, settings: type) -> None:
    """Add one option per field, with its type and default, and the help that the docstring gives it.

    A field that holds a tuple takes one or more values: `--image 3 32 32`.
    """
    helps = {entry.arg_name: entry.description for entry in parse(settings.__doc__ or "").params}
    hints = get_type_hints(settings)
    for field in fields(settings):
        default: Any = field.default
        options: dict[str, Any] = {"type": hints[field.name], "default": default}
        if get_origin(hints[field.name]) is tuple:
            options = {"type": get_args(hints[field.name])[0], "default": list(default), "nargs": "+"}
        parser.add_argument(f"--{field.name}", help=helps[field.name], **options)


def take_options(settings: type[T], args: Namespace) -> T:
    """The dataclass with the values of the options; what it raises is not caught."""
    return settings(**{field.name: args[field.name] for field in fields(settings)})  # type: ignore[arg-type] # T is a dataclass
