"""The command line of a comparison."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

from rich.console import Console

from qat.cli.exits import errors_in_one_line, leave
from qat.cli.parser import OneLineParser
from qat.cli.run_folder import check_writable
from qat.data import DataName
from qat.experiment import Comparison, RunsFailedError, compare, load_results, read_comparison
from qat.experiment.comparison import LIBRARY, MAIN, check_list
from qat.experiment.options import defaults
from qat.experiment.plan import BOTH_BITS
from qat.layers.config import CONFIGURABLE_WIDTHS
from qat.models import MODELS
from qat.quantizers.grid import check_bits
from qat.quiet import quiet
from qat.report import comparison_table, write_report
from qat.training.loss import LOSSES
from qat.whole_file import check_folder

REPORT_FILES = ("comparison.yaml", "report.html", "report.md")
WIDE = 200  # columns of a file or a pipe, which wraps no line
SETUPS = ", ".join(dict.fromkeys(name for file in (MAIN, LIBRARY) for name in read_comparison(file).setups))


@dataclass(frozen=True)
class CompareOptions:
    """The options of the command: type, help, and the option of training that it sets in the base."""

    config: Annotated[str | None, "YAML file of the comparison; by default qat's own."] = None
    setups: Annotated[list[str] | None, f"Names of setups of the YAML file, or any of {SETUPS}."] = None
    seeds: Annotated[list[int] | None, "Random seeds; one run of each setup for each seed."] = None
    bits: Annotated[list[int] | None, "Bit-widths of weights and activations; one run for each."] = None
    weight_bits: Annotated[int | None, "Bits of weights, if not --bits.", BOTH_BITS[0]] = None
    activation_bits: Annotated[int | None, "Bits of activations, if not --bits.", BOTH_BITS[1]] = None
    first_last_bits: Annotated[
        int | None, "Bits of the first and last layer's weights.", "model.quantization.first_last_bits"
    ] = None
    epochs: Annotated[int | None, "Number of epochs, at least 1.", "trainer.max_epochs"] = None
    data: Annotated[DataName | None, "The data set.", "data.name"] = None
    data_root: Annotated[str | None, "Data folder; default: $QAT_DATA, or data.", "data.data_root"] = None
    model: Annotated[str | None, f"One of {', '.join(MODELS)}, or an import path.", "model.name"] = None
    loss: Annotated[str | None, f"One of {', '.join(LOSSES)}, or an import path.", "model.loss"] = None
    delta: Annotated[float | None, "Delta of the Huber loss, > 0.", "model.delta"] = None
    batch_size: Annotated[int | None, "Images per training step.", "data.batch_size"] = None
    learning_rate: Annotated[float | None, "Peak learning rate.", "model.learning_rate"] = None
    out: Annotated[str, "Folder of runs and report; several comparisons can share it."] = "runs/compare"
    jobs: Annotated[int, "Number of runs in parallel, which share the threads; 0: one run per thread."] = 2
    dask: Annotated[str | None, "Address of a Dask scheduler; its workers train the runs."] = None


OPTIONS = get_type_hints(CompareOptions, include_extras=True)
# The option of training that an option of the command sets.
SETS = {name: hint.__metadata__[1] for name, hint in OPTIONS.items() if len(hint.__metadata__) > 1}


def _parse(argv: Sequence[str] | None) -> CompareOptions:
    parser = OneLineParser(
        description="Train a small CNN in several setups and write a report that compares them. Options "
        "of the command line override the YAML file.",
        allow_abbrev=False,
    )
    for name, hint in OPTIONS.items():
        kind, text = hint.__origin__, hint.__metadata__[0]
        items = [get_args(each)[0] for each in get_args(kind) if get_origin(each) is list]
        more = {"type": items[0], "nargs": "+"} if items else {"type": kind}
        parser.add_argument(f"--{name}", default=getattr(CompareOptions, name), help=text, **more)
    with errors_in_one_line((ValueError,)):
        _refuse_options_of_files(sys.argv[1:] if argv is None else argv)
    return CompareOptions(**parser.parse_args(argv).as_dict())


def _refuse_options_of_files(argv: Sequence[str]) -> None:
    """Raise ValueError for an option of training that only a YAML file sets; it says under which name."""
    for argument in argv:
        given = argument.removeprefix("--").partition("=")[0]
        if not argument.startswith("--") or given in OPTIONS:
            continue
        for ending in dict.fromkeys((given, given.rpartition(".")[2])):
            for name in (name for name in defaults() if f".{name}".endswith(f".{ending}")):
                short = next((f"give --{short}" for short, option in SETS.items() if option == name), "")
                remedy = short or f"set {name} in a YAML file and name that with --config"
                raise ValueError(f"unknown option {given!r}; {remedy}")


def _comparison(options: CompareOptions) -> Comparison:
    """The YAML file with the options laid over it."""
    comparison = read_comparison(MAIN if options.config is None else options.config)
    if options.setups is not None:
        comparison = comparison.pick(options.setups)
    if options.seeds is not None:
        comparison = replace(comparison, seeds=options.seeds)
    if options.bits is not None:
        for bits in check_list("bits", options.bits):
            check_bits("bits", bits, CONFIGURABLE_WIDTHS)
        comparison = comparison.with_values(BOTH_BITS, options.bits)
    for short, name in SETS.items():
        value = getattr(options, short)
        if options.bits is not None and name in BOTH_BITS and value is not None:
            raise ValueError(
                f"{short} must be left out with bits, which are those of weights and activations; got "
                f"{short} {value} and bits {' '.join(map(str, options.bits))}"
            )
        if value is not None:
            comparison = comparison.with_values([name], [value])
    return comparison


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; exit with 2 on bad input or where a run failed, with 130 on Ctrl-C."""
    quiet()
    options = _parse(argv)
    try:
        with errors_in_one_line():
            check_writable("out", options.out)
            for name in REPORT_FILES if Path(options.out).is_dir() else ():
                check_folder(Path(options.out) / name)
            compare(_comparison(options), options.out, options.jobs, options.dask, _report)
    except RunsFailedError as failed:
        leave("\n".join(f"error: {reason}" for reason in failed.args), 2)
    except KeyboardInterrupt as stopped:
        kept = f"{stopped}: the same command goes on there" if str(stopped) else "nothing had begun"
        leave(f"stopped; {kept}", 130)


def _report(out: Path) -> None:
    """Write the report of the finished runs, and print its table."""
    report, console = write_report(out), Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(comparison_table(load_results(out)))
    print(f"report: {report}")
