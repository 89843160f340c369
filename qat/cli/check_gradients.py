"""Check every gradient of the package, or the gradient of one user-defined function."""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from qat.cli.exits import errors_in_one_line
from qat.cli.parser import OneLineParser
from qat.gradients import Verdict, check_gradient
from qat.names import imported
from qat.tour.gradient_rows import FORMULAS, ROWS

WIDE = 130  # columns that the table needs to show the formulas of the forward too
FUNCTION_HELP = "autograd Function or callable, as in my_module.MyFunction; by default all functions of qat."
SHAPE_HELP = "Shape of an input, as in 4,3 or (); repeat it for each input. By default 4,3."


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; exit with 1 where a gradient is wrong, with 2 on bad input."""
    parser = OneLineParser(description=__doc__)
    parser.add_argument("function", type=str | None, nargs="?", default=None, help=FUNCTION_HELP)
    parser.add_argument("--shape", type=str, action="append", help=SHAPE_HELP)
    parser.add_function_arguments(check_function, skip={"target", "shapes"})
    args, defaults = vars(parser.parse_args(argv)), parser.get_defaults()
    given = [name for name, value in args.items() if value != defaults[name]]
    target, shapes = args.pop("function"), args.pop("shape") or ["4,3"]
    with errors_in_one_line((ValueError,)):
        if target is None:
            if given:
                raise ValueError(f"{given[0]} needs a function to check, as in my_module.MyFunction")
            verdicts = [row.check(name) for name, row in ROWS.items()]
            print_table(Console(), verdicts)
        else:
            verdicts = [check_function(target, shapes, **args)]
    for verdict in verdicts:
        if target is not None or not verdict.ok:
            print(verdict)
    if not all(verdict.ok for verdict in verdicts):
        sys.exit(1)


def print_table(console: Console, verdicts: Sequence[Verdict]) -> None:
    """One row for each verdict on a function in `ROWS`; the column `forward` only on a wide console."""
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("function", "forward", "gradient", "first", "second", "surrogate", "verdict"):
        table.add_column(title, no_wrap=title != "gradient", overflow="fold")
    for verdict in verdicts:
        cells = [verdict.name, *FORMULAS[verdict.name]]
        cells += [verdict.status("first derivative"), verdict.status("second derivative")]
        cells += ["yes" if "surrogate" in verdict.against else "", "ok" if verdict.ok else "FAILED"]
        table.add_row(*map(Text, cells), style=None if verdict.ok else "red")
    if console.width < WIDE:  # the formulas of the gradient need the room
        del table.columns[1]
    console.print(table)


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
        low: Lower bound of the inputs.
        high: Upper bound of the inputs.
        seed: Seed of the random inputs.
        surrogate: Expected gradient, if it is not the derivative: a function (g, *inputs) that returns one
            gradient for each input, as in my_module.my_gradient.
    """
    if not low < high:
        raise ValueError(f"low must be < high, got {low} and {high}")
    function, stated = load(target), None if surrogate is None else load(surrogate)
    generator = torch.Generator().manual_seed(seed)
    inputs = [random_input(shape, low, high, generator) for shape in shapes]
    return check_gradient(function, *inputs, surrogate=stated, name=target)


def load(target: str) -> Callable[..., Any]:
    """The function at `module.name` or `module:name`."""
    function: Callable[..., Any] = imported("function", target)
    if not callable(function):
        raise ValueError(f"{target} must be a Function class or a callable, got {type(function).__name__}")
    return function


def random_input(shape: str, low: float, high: float, generator: torch.Generator) -> Tensor:
    """A float64 tensor, uniform in `[low, high)`, of a shape such as "4,3"; "()" is a scalar."""
    if not re.fullmatch(r"\(\)|\(?\d+(,\d+)*,?\)?", shape.replace(" ", "")):
        raise ValueError(f"shape must be sizes with commas, as in 4,3, or (); got {shape!r}")
    sizes = [int(size) for size in re.findall(r"\d+", shape)]
    return low + (high - low) * torch.rand(sizes, dtype=torch.float64, generator=generator)
