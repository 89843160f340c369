"""The check of every gradient as a table, or of one function of your own."""

import importlib
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
from qat.tour.gradient_rows import ROWS

WIDE = 130  # columns that the formulas of the forward need, too
HEADER = ("function", "forward", "gradient", "first", "second", "surrogate", "verdict")


def gradient_table(verdicts: dict[str, Verdict], wide: bool) -> Table:
    """One row for each verdict on a function in `ROWS`."""
    table = Table(box=box.SIMPLE_HEAD)
    for title in HEADER:
        if title != "forward" or wide:
            table.add_column(title, no_wrap=title != "gradient", overflow="fold")
    for name, verdict in verdicts.items():
        row, derivatives = ROWS[name], ("first derivative", "second derivative")
        cells = [name, *([row.forward] if wide else []), row.gradient]
        cells += [verdict.outcome(check) for check in derivatives]
        cells += ["yes" if verdict.stated else "", "ok" if verdict.ok else "FAILED"]
        table.add_row(*map(Text, cells), style=None if verdict.ok else "red")
    return table


def load(target: str) -> Callable[..., Any]:
    """The function called `module:name`, the module as in an import, found from the working directory too.

    Raises:
        ValueError: it is not written so, there is no such module or name, or it cannot be called.
    """
    module_name, colon, name = target.partition(":")
    if not (colon and name and all(part.isidentifier() for part in module_name.split("."))):
        raise ValueError(f"a function is written module:name, as in my_module:MyFunction; got {target!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"module {error.name!r} not found (wanted: {target!r}); run from its folder: {here}"
        ) from error
    if not hasattr(module, name):
        raise unknown_name(f"name in {module_name}", name, [n for n in vars(module) if n[:2] != "__"])
    function: Callable[..., Any] = getattr(module, name)
    if not callable(function):
        raise ValueError(f"{target} must be a Function class or a callable, got {type(function).__name__}")
    return function


def random_input(shape: str, low: float, high: float, generator: torch.Generator) -> Tensor:
    """A float64 tensor, uniform in `[low, high)`. Shape: as written, `4,3`; `()` for a scalar.

    Raises:
        ValueError: the shape is no list of sizes.
    """
    sizes = [size.strip() for size in shape.strip("() ").split(",") if size.strip()]
    if not all(size.isdecimal() for size in sizes) or (not sizes and shape.strip() != "()"):
        raise ValueError(f"shape must be sizes with commas, as in 4,3, or (); got {shape!r}")
    unit = torch.rand([int(size) for size in sizes], dtype=torch.float64, generator=generator)
    return low + (high - low) * unit


def check_target(
    target: str, shapes: Sequence[str], low: float, high: float, seed: int, surrogate: str | None
) -> Verdict:
    """Check a function of the user's at a random point.

    Raises:
        ValueError: the function, its surrogate or a shape is not to be had, or low is not < high.
    """
    if not low < high:
        raise ValueError(f"low must be < high, got {low} and {high}")
    function, claim = load(target), None if surrogate is None else load(surrogate)
    generator = torch.Generator().manual_seed(seed)
    inputs = [random_input(shape, low, high, generator) for shape in shapes]
    return check_gradient(function, *inputs, surrogate=claim, name=target)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 1 where a gradient is wrong, 2 on bad input.
    """
    args = _parser().parse_args(None if argv is None else list(argv))
    if args.function is None:
        verdicts = {name: row.check(name) for name, row in ROWS.items()}
        console = Console()
        console.print(gradient_table(verdicts, wide=console.width >= WIDE))
        shown = [verdict for verdict in verdicts.values() if not verdict.ok]
    else:
        try:
            verdict = check_target(
                args.function, args.shape or ["4,3"], args.low, args.high, args.seed, args.surrogate
            )
        except ValueError as error:
            leave(f"error: {one_line(error)}", 2)
        verdicts, shown = {verdict.name: verdict}, [verdict]
    for verdict in shown:
        print(verdict)
    if not all(verdict.ok for verdict in verdicts.values()):
        sys.exit(1)


def _parser() -> OneLineParser:
    parser = OneLineParser(
        description="Check every gradient of the package, or that of one function of yours.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    text = "module:name of a Function class, or of a callable of tensors; without it, the whole package."
    add("function", type=str | None, nargs="?", default=None, help=text)
    add("--shape", type=str, action="append", help="Of an input, as in 4,3; once for each input.")
    add("--low", type=float, default=-2.0, help="Smallest input.")
    add("--high", type=float, default=2.0, help="Largest input.")
    add("--seed", type=int, default=0, help="Of the random inputs.")
    text = "module:name of the gradient that is claimed: (g, *inputs) -> one for each input."
    add("--surrogate", type=str | None, default=None, help=text)
    return parser
