"""The verb `memory`: what training a network keeps in memory, mode by mode."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from qat.cli.dataclass_options import add_options, take_options
from qat.cli.exits import leave
from qat.cli.parser import OneLineParser
from qat.cli.run_folder import check_writable
from qat.measure.figures import save_figures
from qat.measure.machine import describe, in_words
from qat.measure.memory_study import StudyOptions, check_study, run_study
from qat.measure.memory_tables import study_tables
from qat.measure.tables import for_terminal, write_results
from qat.measure.workload import Workload
from qat.names import one_line
from qat.options import BAD_INPUT
from qat.progress import announced, tracked
from qat.quantizers import build_kernels
from qat.quiet import quiet


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 1 if a mode does not compute what its reference computes, 2 on bad input or too little
            memory, 130 when stopped with Ctrl-C.
    """
    quiet()
    try:
        args = _parser().parse_args(None if argv is None else list(argv))
        workload, options = take_options(Workload, args), take_options(StudyOptions, args)
        check_writable("out", args.out)
        check_study(workload, options)
    except BAD_INPUT as error:
        leave(f"error: {one_line(error)}", 2)
    out, machine = Path(args.out), describe(workload.device)
    try:
        compiled = build_kernels(
            workload.device, lambda kernels: tracked(kernels, "compiling kernels", after=0)
        )
        with announced("memory", options.work) as announce:
            study = run_study(workload, options, announce)
        tables = study_tables(study)
        files = write_results(out, "memory", machine, {"compiled": compiled} | asdict(study), tables)
        files += save_figures(study, out)
    except OSError as error:  # a full disk, or a process that failed; everything else is a bug
        leave(f"error: {one_line(error)}", 2)
    except RuntimeError as error:
        if re.search("allocate memory|out of memory", str(error)):
            leave(f"error: batch {workload.batch} does not fit into the memory here; try a smaller one", 2)
        raise
    except KeyboardInterrupt:
        leave("stopped; nothing is written", 130)
    console = Console(highlight=False)
    console.print(f"{in_words(machine)}\n{_in_words(workload, compiled)}", soft_wrap=True)
    for table in tables:
        console.print(for_terminal(table))
    for file in files:
        print(f"written to {file}")
    different = [name for name, row in study.rows.items() if row.identical is False]
    if different:
        leave(f"error: these modes do not compute what their reference computes: {'; '.join(different)}", 1)


def _parser() -> OneLineParser:
    parser = OneLineParser(
        description="Measure how much memory training a network needs, for each mode.", allow_abbrev=False
    )
    add_options(parser, Workload)
    add_options(parser, StudyOptions)
    text = "Folder for memory.json, memory.md and the figures."
    parser.add_argument("--out", type=str, default="runs/memory", help=text)
    return parser


def _in_words(workload: Workload, compiled: bool) -> str:
    shape = "x".join(map(str, workload.image))
    return (
        f"{workload.model}, {workload.batch} images of {shape}, {workload.bits} bits, {workload.scale} scales"
        f"; kernels {'compiled' if compiled else 'eager'}"
    )
