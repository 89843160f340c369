"""The command line of the memory study."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from jsonargparse import Namespace
from rich.console import Console
from rich.progress import Progress

from qat.cli.exits import BAD_INPUT, leave
from qat.cli.parser import OneLineParser
from qat.cli.quiet import quiet
from qat.cli.writable import check_writable
from qat.measure.memory.budget import parse_bytes
from qat.measure.memory.case import Case
from qat.measure.memory.depth import check_depths
from qat.measure.memory.modes import MODES
from qat.measure.memory.process import pickled
from qat.measure.memory.report import write_report
from qat.measure.memory.study import Study, run_study, work
from qat.measure.memory.table import budget_table, depth_table, modes_table
from qat.models import MODELS
from qat.names import one_line
from qat.progress import of_a_whole, tracked
from qat.quantizers import compile_kernels
from qat.training.result import versions


def _parser() -> OneLineParser:
    parser = OneLineParser(
        description="Measure what training a network keeps in memory, mode by mode.", allow_abbrev=False
    )
    add = parser.add_argument
    text = f"One of {', '.join(MODELS)}, or the import path of your own."
    add("--model", type=str, default=Case.model, help=text)
    add("--image", type=int, nargs="+", default=list(Case.image), help="Channels, height and width.")
    add("--batch", type=int, default=Case.batch, help="Images a step.")
    add("--bits", type=int, default=Case.bits, help="Of weights and activations: 1 to 8, or 16.")
    text = "Where the scales come from."
    add("--scale", type=Literal["observed", "learned"], default=Case.scale, help=text)
    text = "Globs over the names of blocks to recompute; default: stem and blocks.*, where there are such."
    add("--checkpoint", type=str, nargs="+", default=[], help=text)
    add("--rounds", type=int, default=11, help="Steps of each mode, at least 3; the first is not timed.")
    add("--depth", type=int, nargs="+", default=[], help="Also count stacks of so many residual blocks.")
    text = "Also find the largest batch of each mode that fits into so much memory, as in 2GB."
    add("--budget", type=str | None, default=None, help=text)
    add("--device", type=Literal["cpu", "cuda"], default=Case.device, help="Where it trains.")
    add("--out", type=str, default="runs/memory", help="Folder of the figures and memory.json.")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 1 where a mode's gradients are not its twin's, 2 on bad input or too little memory, 130
            when stopped.
    """
    quiet()
    try:
        args = _parser().parse_args(None if argv is None else list(argv))
        case, budget = _check(args)
    except BAD_INPUT as error:
        leave(f"error: {one_line(error)}", 2)
    try:
        compiled = compile_kernels(
            case.device, lambda kernels: tracked(kernels, "compiling kernels", after=0)
        )
        study = _run(case, args.rounds, args.depth, budget)
        files = write_report(study, compiled, Path(args.out))
    except OSError as error:  # a full disk, a process that failed; all else is a bug
        leave(f"error: {one_line(error)}", 2)
    except RuntimeError as error:
        if re.search("allocate memory|out of memory", str(error)):
            leave(f"error: batch {case.batch} does not fit into the memory here; try a smaller one", 2)
        raise
    except KeyboardInterrupt:
        leave("stopped; nothing is written", 130)
    _show(study, compiled)
    for file in files:
        print(f"written to {file}")
    different = [name for name, row in study.rows.items() if row.steps.identical is False]
    if different:
        leave(f"error: computes other gradients than its twin: {', '.join(different)}", 1)


def _check(args: Namespace) -> tuple[Case, int | None]:
    """The case, and the bytes of the budget."""
    check_writable("out", args.out)
    names = ("model", "image", "batch", "bits", "scale", "checkpoint", "device")
    case = Case(**{name: args[name] for name in names})
    if args.rounds < 3:
        raise ValueError(f"rounds must be at least 3, the first of which is not timed; got {args.rounds}")
    if args.depth:
        check_depths(args.depth)
    budget = None if args.budget is None else parse_bytes(args.budget)
    if budget is not None and case.batch < 4:
        raise ValueError(
            f"batch must be at least 4 with a budget, which measures half of it; got {case.batch}"
        )
    for name in MODES:
        pickled(case, name)  # what cannot be built or handed over is said before the work begins
    return case, budget


def _run(case: Case, rounds: int, depths: Sequence[int], budget: int | None) -> Study:
    console = Console(stderr=True)
    with Progress(
        *of_a_whole(), console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=work(rounds, depths, budget is not None))
        running = 0.0

        def advance(what: str, share: float) -> None:
            nonlocal running
            progress.update(task, description=what, advance=running)
            running = share

        return run_study(case, rounds, depths, budget, advance)


def _show(study: Study, compiled: bool) -> None:
    case, found = study.case, versions()
    console = Console(highlight=False)
    shape = "x".join(map(str, case.image))
    console.print(
        f"{case.model}, {case.batch} images of {shape}, {case.bits} bits, {case.scale} scales; "
        f"{found['machine']}, torch {found['torch']}, kernels {'compiled' if compiled else 'eager'}"
    )
    console.print(modes_table(study.rows))
    if study.budget:
        console.print(budget_table(study.budget))
    if study.depth:
        console.print(depth_table(study.depth))
