"""The command line of the export: a run as ONNX, npz or C, compared with what was trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import Tensor, nn

from qat.export import IntegerModel, Verification, export_onnx, verify, write_c, write_npz
from qat.names import unknown_name
from qat.studies.export.size_table import size_columns, size_table
from qat.studies.export.trained_run import TrainedRun, load_run
from qat.training.cli import BAD_INPUT, leave
from qat.training.messages import one_line
from qat.training.parser import OneLineParser
from qat.training.quiet import quiet

FORMATS = {"onnx": "model.onnx", "npz": "model.npz", "c": "model.c"}  # and what the file is called by default


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 2 on bad input, 130 when stopped with Ctrl-C.
    """
    quiet()
    try:
        _export(_parser().parse_args(None if argv is None else list(argv)))
    except BAD_INPUT as error:
        leave(f"error: {one_line(error)}", 2)
    except KeyboardInterrupt:
        leave("stopped", 130)


def _parser() -> OneLineParser:
    parser = OneLineParser(
        description="Export a trained run, and compare it with what was trained on the whole test set.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("run", type=str, help="Folder of a run of train.py or compare.py, or a .ckpt file.")
    add("--format", type=str, default="onnx", help=f"One of {', '.join(FORMATS)}.")
    add("--out", type=str | None, default=None, help="The file; default: model.onnx, model.npz or model.c.")
    add("--opset", type=int, default=25, help="Of ONNX, 21 to 25; 25 has 2-bit types.")
    add("--fold", type=bool, default=False, help="ONNX: fold BatchNorm into scales and biases.")
    add("--sizes", type=bool, default=False, help="Only print the bytes at 8, 4 and 2 bits, by layer.")
    add("--ckpt_path", type=str | None, default=None, help="A .ckpt file other than the run's last one.")
    add("--data", type=str | None, default=None, help="The data set, where the run's folder names none.")
    add("--data_root", type=str | None, default=None, help="Where data lies; default: the run's.")
    return parser


def _export(args: Any) -> None:
    if args.format not in FORMATS:
        raise unknown_name("format", args.format, FORMATS)
    run = load_run(args.run, args.ckpt_path, args.data, args.data_root)
    if args.sizes:
        Console(width=160).print(size_table(size_columns(dict(run.classifier.hparams))))
        return
    out = Path(args.out or FORMATS[args.format])
    images, labels = run.test_set()
    if args.format == "onnx":
        _onnx(run, images, labels, out, args)
    else:
        _integers(run, images, labels, out, args.format)


def _onnx(run: TrainedRun, images: Tensor, labels: Tensor, out: Path, args: Any) -> None:
    model = _network(run)
    export_onnx(model, images[:2], out, opset=args.opset, fold=args.fold, run=str(run.ckpt))
    done = verify(model, out, images)
    if done.unexplained:
        out.unlink()
        raise ValueError(
            f"the file does not compute what was trained: {len(done.unexplained)} images differ, not by a "
            f"tie, the first in {done.unexplained[0].layer or 'the output'}; nothing is kept"
        )
    print(f"written to {out}: {out.stat().st_size:,} bytes, opset {args.opset}")
    print(f"onnxruntime, optimisations off: {done.off}")
    print(f"onnxruntime, optimisations on:  {done.on}")
    print(_traced(done))


def _traced(done: Verification) -> str:
    if not done.differences:
        return "no image differs"
    farthest = max(difference.from_tie for difference in done.differences)
    layers = ", ".join(dict.fromkeys(difference.layer for difference in done.differences))
    return (
        f"{len(done.differences)} images differ, each first at a code on a tie (at most {farthest:.1g} of a "
        f"step from it), in {layers}"
    )


def _integers(run: TrainedRun, images: Tensor, labels: Tensor, out: Path, kind: str) -> None:
    model = IntegerModel(_network(run), tuple(images.shape[1:]))  # type: ignore[arg-type]
    if kind == "c":
        source = write_c(model, out)
        print(f"written to {out}: {out.stat().st_size:,} bytes of C")
        print(
            f"flash {source.flash:,} bytes ({source.weights:,} of weights) and code, RAM {source.ram:,} bytes"
        )
    else:
        write_npz(model, out)
        print(f"written to {out}: {out.stat().st_size:,} bytes; python qat/export/reader.py runs it")
    done = model.compare(images)
    accuracy = float((done.classes == labels.numpy()).mean())
    print(f"integers, {100 * accuracy:.2f} % right: {done.logits}")
    for layer, (differ, total) in done.codes.items():
        if differ:
            print(f"  codes that differ in {layer}: {differ:,} of {total:,}")
    if not any(differ for differ, _ in done.codes.values()):
        print("  no code differs")
    widest = max(model.accumulators, key=lambda one: one.largest)
    print(f"  no sum exceeds {widest.largest:,} ({widest.layer}); an int32 holds 2,147,483,647")


def _network(run: TrainedRun) -> nn.Module:
    network = run.classifier.model
    assert isinstance(network, nn.Module)
    return network
