"""The command line of the benchmark."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from qat.cli.exits import leave
from qat.cli.parser import OneLineParser
from qat.cli.quiet import quiet
from qat.cli.writable import check_writable
from qat.measure.benchmark import parts, scaling, steps
from qat.measure.benchmark.machine import describe, in_words
from qat.measure.benchmark.parts import PARTS, USUAL, Outcome, Settings
from qat.measure.benchmark.writing import as_markdown, for_terminal
from qat.names import match_names, one_line, unknown_name
from qat.progress import tracked
from qat.quantizers import compile_kernels
from qat.whole_file import write_json

SCHEMA = 1


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 1 where a candidate failed, 2 on bad input, 130 when stopped with Ctrl-C.
    """
    quiet()
    args = _parser().parse_args(None if argv is None else list(argv))
    try:
        settings = _settings(args)
        check_writable("out", args.out)
    except ValueError as error:
        leave(f"error: {one_line(error)}", 2)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    chosen = [name for name in PARTS if args[name]] or list(USUAL)
    console = Console(highlight=False)
    console.print(in_words(describe(settings.device)), soft_wrap=True)
    if chosen != ["startup"]:  # whose processes compile themselves
        console.print(_compile(settings.device))
    errors = []
    for number, name in enumerate(chosen):
        machine = describe(settings.device)
        try:
            outcome = PARTS[name](settings)
            _write(Path(args.out), name, machine, settings, outcome)
        except OSError as error:  # a full disk, say
            leave(f"error: {one_line(error)}", 2)
        except KeyboardInterrupt:
            leave(f"stopped; {number} of {len(chosen)} parts are finished and kept in {args.out}", 130)
        for table in outcome.tables:
            console.print(for_terminal(table))
        errors += outcome.errors
    print(f"written to {args.out}")
    if errors:
        sys.exit(1)


def _compile(device: torch.device) -> str:
    start = time.perf_counter()
    compiled = compile_kernels(device, lambda kernels: tracked(kernels, "compiling kernels", after=0))
    return f"kernels: {f'compiled in {time.perf_counter() - start:.1f} s' if compiled else 'eager'}"


def _parser() -> OneLineParser:
    parser = OneLineParser(
        description="Time quantizing: ours, the peers', and what it cannot cost less than.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    for name, part in PARTS.items():
        usual = " (usual)" if name in USUAL else ""
        add(f"--{name}", action="store_true", help=f"This part{usual}: {part.__doc__}")
    add("--size", type=int, nargs=4, default=[64, 64, 32, 32], help="Of the tensor of ops: N C H W.")
    add("--sizes", type=int, nargs="+", default=list(scaling.SIZES), help="Elements of those of scaling.")
    text = f"Any of {', '.join(steps.SHAPES)}; profile and startup take the last."
    add("--models", type=str, nargs="+", default=list(steps.SHAPES), help=text)
    add("--batch_size", type=int, default=128, help="Images a step.")
    add("--rounds", type=int, default=20, help="Each runs every candidate once.")
    add("--only", type=str, nargs="+", default=["*"], help="Globs over the candidates of ops and steps.")
    add("--device", type=str, default="cpu", help="cpu or cuda.")
    add("--threads", type=int | None, default=None, help="Of the processor; default: torch's.")
    add(
        "--out",
        type=str,
        default="runs/benchmark",
        help="Folder of the figures: for each part a JSON file and its tables in Markdown.",
    )
    return parser


def _settings(args: Any) -> Settings:
    for name in ("batch_size", "rounds", "threads"):
        if args[name] is not None and args[name] < 1:
            raise ValueError(f"{name} must be at least 1, got {args[name]}")
    if min(args.size) < 1:
        raise ValueError(f"size must be four numbers of at least 1, N C H W; got {args.size}")
    for size in args.sizes:
        if size < 1 or size % scaling.UNIT:
            raise ValueError(f"sizes must be multiples of {scaling.UNIT}, got {size}")
    for model in args.models:
        if model not in steps.SHAPES:
            raise unknown_name("model", model, steps.SHAPES)
    if args.device not in ("cpu", "cuda"):
        raise unknown_name("device", args.device, ("cpu", "cuda"))
    if args.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda needs a GPU that torch can use, and there is none; use cpu")
    known = parts.candidate_names()
    return Settings(
        shape=tuple(args.size),
        sizes=tuple(args.sizes),
        models=tuple(args.models),
        batch_size=args.batch_size,
        rounds=args.rounds,
        device=torch.device(args.device),
        names=frozenset(name for glob in args.only for name in match_names(glob, known, "only pattern")),
    )


def _write(out: Path, part: str, machine: dict[str, Any], settings: Settings, outcome: Outcome) -> None:
    told = asdict(settings) | {"device": str(settings.device), "names": sorted(settings.names)}
    content = {
        "schema": SCHEMA,
        "part": part,
        "machine": machine,
        "settings": told,
        "results": outcome.results,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{part}.json", content)
    tables = [as_markdown(table) for table in outcome.tables]
    page = "\n".join([*tables, in_words(machine), ""])
    (out / f"{part}.md").write_text(page, encoding="utf-8")
