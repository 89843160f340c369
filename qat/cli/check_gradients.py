"""The verb `check_gradients`: a table of every gradient, or the check of one user-defined function."""

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from qat.cli.exits import leave
from qat.cli.parser import OneLineParser
from qat.gradients import Verdict, check_gradient
from qat.names import one_line, unknown_name
from qat.tour import ROWS

WIDE = 130  # columns that the table needs to show the formulas of the forward too
HEADER = ("function", "forward", "gradient", "first", "second", "surrogate", "verdict")
DESCRIPTION = "Check every gradient of the package, or the gradient of one user-defined function."
FUNCTION_HELP = "autograd Function or callable, as in my_module:MyFunction; by default all functions of qat."
SHAPE_HELP = "Shape of an input, as in 4,3 or (); repeat it for each input. By default 4,3."


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 1 where a gradient is wrong, 2 on bad input.
    """
    parser = OneLineParser(description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("function", type=str | None, nargs="?", default=None, help=FUNCTION_HELP)
    parser.add_argument("--shape", type=str, action="append", help=SHAPE_HELP)
    parser.add_function_arguments(check_function, skip={"target", "shapes"})
    args = vars(parser.parse_args(None if argv is None else list(argv)))
    target, shapes = args.pop("function"), args.pop("shape") or ["4,3"]
    if target is None:
        verdicts = {name: row.check(name) for name, row in ROWS.items()}
        console = Console()
        console.print(gradient_table(verdicts, wide=console.width >= WIDE))
        shown = [verdict for verdict in verdicts.values() if not verdict.ok]
    else:
        try:
            shown = [check_function(target, shapes, **args)]
        except ValueError as error:
            leave(f"error: {one_line(error)}", 2)
    for verdict in shown:
        print(verdict)
    if not all(verdict.ok for verdict in shown):
        sys.exit(1)


def gradient_table(verdicts: dict[str, Verdict], wide: bool) -> Table:
    """One row for each verdict on a function in `ROWS`; the column `forward` only where it is `wide`."""
    table = Table(box=box.SIMPLE_HEAD)
    for title in HEADER:
        if title != "forward" or wide:
            table.add_column(title, no_wrap=title != "gradient", overflow="fold")
    for name, verdict in verdicts.items():
        row, derivatives = ROWS[name], ("first derivative", "second derivative")
        cells = [name, *([row.forward] if wide else []), row.gradient, *map(verdict.status, derivatives)]
        cells += ["yes" if verdict.stated else "", "ok" if verdict.ok else "FAILED"]
        table.add_row(*map(Text, cells), style=None if verdict.ok else "red")
    return table


def check_function(
    target: str,
    shapes: Sequence[str],
    low: float = -2.0,
    high: float = 2.0,
    seed: int = 0,
    surrogate: str | None = None,
) -> Verdict:
    """Check the gradient of a user-defined function at random float64 inputs.

    Args:
        target: the function, as in my_module:MyFunction.
        shapes: the shape of each input, as in "4,3".
        low: Lower bound of the inputs.
        high: Upper bound of the inputs.
        seed: Seed of the random inputs.
        surrogate: Expected gradient, if it is not the derivative: a function (g, *inputs) that returns one
            gradient for each input, as in my_module:my_gradient.

    Raises:
        ValueError: a function is not found, a shape is not valid, or low is not less than high.
    """
    if not low < high:
        raise ValueError(f"low must be < high, got {low} and {high}")
    function, stated = load(target), None if surrogate is None else load(surrogate)
    generator = torch.Generator().manual_seed(seed)
    inputs = [random_input(shape, low, high, generator) for shape in shapes]
    return check_gradient(function, *inputs, surrogate=stated, name=target)


def load(target: str) -> Callable[..., Any]:
    """The function at `module:name` or `module.name`, also of a module in the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module, _, name = target.rpartition(":" if ":" in target else ".")
    if not (module and name):
        raise ValueError(f"function must be module:name, as in my_module:MyFunction, got {target!r}")
    try:
        found = importlib.import_module(module)
    except Exception as error:  # of the user's module
        raise ValueError(f"module {module!r} cannot be imported in {here}: {error}") from error
    if not hasattr(found, name):
        raise unknown_name(f"name in {module}", name, [n for n in vars(found) if n[:2] != "__"])
    function: Callable[..., Any] = getattr(found, name)
    if not callable(function):
        raise ValueError(f"{target} must be a Function class or a callable, got {type(function).__name__}")
    return function


def random_input(shape: str, low: float, high: float, generator: torch.Generator) -> Tensor:
    """A float64 tensor, uniform in `[low, high)`, of a shape such as "4,3"; "()" is a scalar."""
    if not re.fullmatch(r"\(\)|\(?\d+(,\d+)*,?\)?", shape.replace(" ", "")):
        raise ValueError(f"shape must be sizes with commas, as in 4,3, or (); got {shape!r}")
    sizes = [int(size) for size in re.findall(r"\d+", shape)]
    return low + (high - low) * torch.rand(sizes, dtype=torch.float64, generator=generator)
