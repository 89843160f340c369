"""The command line of a comparison."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from qat.cli.exits import BAD_INPUT, leave
from qat.cli.parser import OneLineParser
from qat.cli.quiet import quiet
from qat.cli.writable import check_writable
from qat.data import SOURCES
from qat.experiment.compare import compare, is_finished, prepare
from qat.experiment.plan import Run, Settings, plan
from qat.experiment.results import load_results
from qat.experiment.setups import SETUPS, USUAL
from qat.layers import Quantization
from qat.layers.config import CONFIGURABLE_WIDTHS
from qat.models import MODELS
from qat.names import one_line
from qat.quantizers.grid import check_bits
from qat.report import comparison_table, write_report
from qat.training.loss import LOSSES


def _parser() -> OneLineParser:
    parser = OneLineParser(
        description="Train one small CNN in several setups and report how they compare.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--data", type=str, default="mnist5k", help=f"One of {', '.join(SOURCES)}.")
    add("--data_root", type=str | None, default=None, help="Where data lies; default: QAT_DATA, else data.")
    add("--model", type=str, default="small_cnn", help=f"One of {', '.join(MODELS)}.")
    widths = "Of weights and activations: 1 to 8, 16, or 32 for float; with several, each setup at each."
    add("--bits", type=int, nargs="+", default=[4], help=widths)
    add("--weight_bits", type=int | None, default=None, help="Of weights, where they differ from --bits.")
    add("--activation_bits", type=int | None, default=None, help="Of activations, where they differ.")
    add("--loss", type=str, default="huber", help=f"One of {', '.join(LOSSES)}.")
    add("--epochs", type=int, default=Settings.epochs, help="At least 1.")
    add("--batch_size", type=int, default=Settings.batch_size, help="Images a step.")
    add("--learning_rate", type=float, default=Settings.learning_rate, help="Peak of the schedule.")
    add("--seeds", type=int, nargs="+", default=[0, 1], help="One run of each setup for each seed.")
    add("--setups", type=str, nargs="+", default=list(USUAL), help=f"Any of {', '.join(SETUPS)}.")
    add("--out", type=str, default="runs/compare", help="Folder of the runs and the report.")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 2 on bad input, 130 when stopped with Ctrl-C.
    """
    quiet()
    try:
        settings, runs = _parse(argv)
        prepare(settings, runs)
    except BAD_INPUT as error:
        leave(f"error: {one_line(error)}", 2)
    out = runs[0].out
    try:
        compare(settings, runs)
        report = write_report(out)
    except (OSError, FloatingPointError) as error:  # a full disk, a run that diverged; all else is a bug
        leave(f"error: {one_line(error)}", 2)
    except KeyboardInterrupt:
        done = sum(is_finished(run, settings) for run in runs)
        leave(
            f"stopped; {done} of {len(runs)} runs are finished and kept: the same command goes on there", 130
        )
    Console().print(comparison_table(load_results(out)))
    print(f"report: {report}")


def _parse(argv: Sequence[str] | None) -> tuple[Settings, list[Run]]:
    args = _parser().parse_args(None if argv is None else list(argv))
    check_writable("out", args.out)
    for bits in args.bits:
        check_bits("bits", bits, CONFIGURABLE_WIDTHS)
    for name in ("weight_bits", "activation_bits"):
        if args[name] is not None and len(args.bits) > 1:
            raise ValueError(
                f"{name} must be left out with several bits, which are those of both; got {name} "
                f"{args[name]} and bits {' '.join(map(str, args.bits))}"
            )
    quantization = Quantization(
        weight_bits=args.bits[0] if args.weight_bits is None else args.weight_bits,
        activation_bits=args.bits[0] if args.activation_bits is None else args.activation_bits,
    )
    same = {name: args[name] for name in ("data", "data_root", "model", "loss", "epochs", "batch_size")}
    settings = Settings(**same, learning_rate=args.learning_rate, quantization=quantization)
    return settings, plan(args.setups, args.seeds, Path(args.out), args.bits)
