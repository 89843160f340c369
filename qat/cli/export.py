"""The command line of the export: a run as ONNX, npz or C, compared with what was trained."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from torch import Tensor, nn

from qat.cli.exits import BAD_INPUT, leave
from qat.cli.parser import OneLineParser
from qat.cli.quiet import quiet
from qat.cli.size_table import size_columns, size_table
from qat.export import (
    IntegerAgreement,
    IntegerModel,
    Verification,
    export_onnx,
    verify,
    write_c,
    write_npz,
)
from qat.export.c.written import COMPILERS, c_logits, find_compiler, npz_logits
from qat.names import one_line, unknown_name
from qat.training.trained_run import TrainedRun, load_run
from qat.whole_file import check_folder, write_whole

FORMATS = {"onnx": "model.onnx", "npz": "model.npz", "c": "model.c"}  # and what the file is called by default
C_IMAGES = 1000  # of the test set, that the compiled C runs on


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
    with _draft(out) as draft:
        export_onnx(model, images[:2], draft, opset=args.opset, fold=args.fold, run=str(run.ckpt))
        done = verify(model, draft, images)
        if done.unexplained:
            raise ValueError(
                f"the file does not compute what was trained: {len(done.unexplained)} images differ, not by "
                f"a tie, the first in {done.unexplained[0].layer or 'the output'}; nothing is kept"
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
    model = IntegerModel(_network(run), tuple(images.shape[1:]))  # type: ignore[arg-type] # three numbers
    with _draft(out) as draft:
        source = write_c(model, draft) if kind == "c" else None
        if source is None:
            write_npz(model, draft)
        done = model.compare(images)
        differ = sum(differ for differ, _ in done.codes.values())
        if model.program.is_exact and (differ or done.logits.equal < len(images)):
            raise ValueError(
                f"the integers must equal what was trained, but {len(images) - done.logits.equal} images and "
                f"{differ} codes differ; nothing is kept"
            )
        ran = _run_npz(model, draft, images, done) if source is None else _run_c(model, draft, images, done)
    print(f"written to {out}: {out.stat().st_size:,} bytes")
    if source is not None:
        print(
            f"flash {source.flash:,} bytes ({source.weights:,} of weights) and code, RAM {source.ram:,} bytes"
        )
    print(ran)
    accuracy = float((done.classes == labels.numpy()).mean())
    print(f"integers, {100 * accuracy:.2f} % right: {done.logits}")
    for layer, (wrong, total) in done.codes.items():
        if wrong:
            print(f"  codes that differ in {layer}: {wrong:,} of {total:,}")
    if not differ:
        print("  no code differs")
    widest = max(model.accumulators, key=lambda one: one.largest)
    print(f"  no sum exceeds {widest.largest:,} ({widest.layer}); an int32 holds 2,147,483,647")


def _run_npz(model: IntegerModel, file: Path, images: Tensor, done: IntegerAgreement) -> str:
    _check_file(npz_logits(file, model.codes(images)), done)
    count = f"{len(images):,}"
    return f"read back by qat/export/integers/reader.py: equal to the integers on all {count} test images"


def _run_c(model: IntegerModel, file: Path, images: Tensor, done: IntegerAgreement) -> str:
    compiler = find_compiler()
    if compiler is None:
        return f"not compiled and not run: there is none of {', '.join(COMPILERS)} on this machine"
    codes = model.codes(images[:C_IMAGES]) - model.program.steps[0].settings["low"]
    _check_file(c_logits(compiler, file, codes, done.integers.shape[1]), done)
    return f"compiled by {Path(compiler).name} and run: equal to the integers on {len(codes):,} test images"


def _check_file(logits: Any, done: IntegerAgreement) -> None:
    differ = int((logits != done.integers[: len(logits)]).any(axis=1).sum())
    if differ:
        raise ValueError(
            f"the file does not compute the integers: {differ} of {len(logits)} images differ; "
            "nothing is kept"
        )


@contextmanager
def _draft(out: Path) -> Iterator[Path]:
    """A place to write the file and try it; it takes its final name when nothing was raised."""
    check_folder(out)
    with TemporaryDirectory() as folder:
        draft = Path(folder) / out.name
        yield draft
        write_whole(out, draft.read_bytes())


def _network(run: TrainedRun) -> nn.Module:
    network = run.classifier.model
    assert isinstance(network, nn.Module)
    return network
