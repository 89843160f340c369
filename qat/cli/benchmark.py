"""The verb `benchmark`: the speed of quantization, beside float training and other frameworks."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from qat.cli.dataclass_options import add_options, take_options
from qat.cli.exits import leave
from qat.cli.parser import OneLineParser
from qat.cli.run_folder import check_writable
from qat.measure.machine import describe, in_words
from qat.measure.speed_parts import DEFAULT_PARTS, PARTS, SpeedOptions
from qat.measure.tables import for_terminal, write_results
from qat.names import one_line
from qat.progress import tracked
from qat.quantizers import build_kernels
from qat.quiet import quiet


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 1 if a candidate failed, 2 on bad input, 130 when stopped with Ctrl-C.
    """
    quiet()
    args = _parser().parse_args(None if argv is None else list(argv))
    try:
        options = take_options(SpeedOptions, args)
        check_writable("out", args.out)
    except ValueError as error:
        leave(f"error: {one_line(error)}", 2)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    chosen = [name for name in PARTS if args[name]] or list(DEFAULT_PARTS)
    console, out, failed = Console(highlight=False), Path(args.out), False
    console.print(in_words(describe(options.device)), soft_wrap=True)
    if chosen != ["startup"]:  # whose processes compile the kernels themselves
        console.print(_compile(options.device))
    settings = asdict(options) | {"names": sorted(options.names())}
    for number, name in enumerate(chosen):
        machine = describe(options.device)
        try:
            found = PARTS[name](options)
            content = {"part": name, "settings": settings, "results": found.results}
            write_results(out, name, machine, content, found.tables)
        except OSError as error:  # a full disk, for example
            leave(f"error: {one_line(error)}", 2)
        except KeyboardInterrupt:
            leave(f"stopped; {number} of {len(chosen)} parts are finished and kept in {out}", 130)
        for table in found.tables:
            console.print(for_terminal(table))
        failed |= found.failed
    print(f"written to {out}")
    if failed:
        sys.exit(1)


def _compile(device: str) -> str:
    start = time.perf_counter()
    compiled = build_kernels(device, lambda kernels: tracked(kernels, "compiling kernels", after=0))
    return f"kernels: {f'compiled in {time.perf_counter() - start:.1f} s' if compiled else 'eager'}"


def _parser() -> OneLineParser:
    parser = OneLineParser(
        description="Compare the speed of quantization with float training and other frameworks.",
        allow_abbrev=False,
    )
    for name, part in PARTS.items():
        default = " (runs by default)" if name in DEFAULT_PARTS else ""
        parser.add_argument(f"--{name}", action="store_true", help=f"Run this part{default}: {part.__doc__}")
    add_options(parser, SpeedOptions)
    text = "Folder for the JSON file and the Markdown tables of each part."
    parser.add_argument("--out", type=str, default="runs/benchmark", help=text)
    return parser
