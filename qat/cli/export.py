"""The verb `export`: a run as ONNX, npz or C, compared with what was trained."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Column, Table
from torch import Tensor, nn

from qat.cli.exits import errors_in_one_line
from qat.cli.parser import OneLineParser
from qat.export import sizes_by_width
from qat.export.c.compile import COMPILERS, c_logits, find_compiler
from qat.export.c.source import write_c
from qat.export.integers.model import IntegerModel
from qat.export.integers.npz import npz_logits, write_npz
from qat.export.integers.program import IntArray
from qat.export.onnx.export import export_onnx
from qat.export.onnx.verify import verify
from qat.layers import Quantization
from qat.names import import_module_of
from qat.quiet import quiet
from qat.training.network import build_network
from qat.training.trained_run import TrainedRun, load_run
from qat.whole_file import draft_of

Names = Sequence[str] | None  # of the classes
C_IMAGES = 1000  # images of the test set that the compiled C file runs on


def main(argv: Sequence[str] | None = None) -> None:
    """Run the verb on `argv`, by default the process's own; exit with 2 on bad input, with 130 on Ctrl-C."""
    quiet()
    parser = OneLineParser(description=export.__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_function_arguments(export, as_group=False, as_positional=True)
    with errors_in_one_line(stopped="stopped"):
        export(**vars(parser.parse_args(argv)))


def export(
    run: str,
    format: Literal["onnx", "npz", "c"] = "onnx",
    out: str | None = None,
    opset: int | None = None,
    fold: bool = False,
    sizes: bool = False,
    ckpt: str | None = None,
    model: str | None = None,
    data: str | None = None,
    data_root: str | None = None,
    modules: str | None = None,
) -> None:
    """Export a trained run, and compare the file with the trained network on the test set.

    Args:
        run: Folder of a run of `train` or `compare`, or a .ckpt file.
        format: Format of the file.
        out: Path of the exported file; by default model.onnx, model.npz or model.c.
        opset: ONNX opset, 21 to 25; by default 25 for grids of 1 and 2 bits, 21 for others.
        fold: ONNX only: fold BatchNorm into scales and biases.
        sizes: Print the bytes of each layer at 8, 4 and 2 bits, and write no file.
        ckpt: best, last, or a .ckpt file; by default the best of the run, or the last if it has no best.
        model: For a .ckpt file of another LightningModule: import path of a function without arguments
            that returns the quantized network, such as my_module.build.
        data: Name of the data set, if it is not stored in the folder of the run. With model also an import
            path of a function that returns test images and labels, such as my_module.test_set.
        data_root: Folder of the data; by default the one that the run used.
        modules: Modules to import first, with commas: those of a user-defined network or rounding.
    """
    for module in modules.split(",") if modules else ():
        import_module_of("modules", module.strip())
    trained = load_run(run, ckpt, data, data_root, model)
    if sizes:
        Console(width=160).print(_size_table(trained))
        return
    network, names = trained.network, trained.class_names
    images, labels = trained.test_set()
    path = Path(out or f"model.{format}")
    if format == "onnx":
        lines = _onnx(network, images, path, opset, fold, str(trained.ckpt), names)
    else:
        lines = _integers(network, images, labels, path, format, names)
    print(f"written to {path}: {path.stat().st_size:,} bytes", trained.note, *lines, sep="\n")


def _onnx(
    network: nn.Module, images: Tensor, path: Path, opset: int | None, fold: bool, run: str, names: Names
) -> list[str]:
    with draft_of(path) as draft:
        export_onnx(network, images[:2], draft, opset=opset, fold=fold, run=run, class_names=names)
        done = verify(network, draft, images)
        if done.unexplained:
            raise ValueError(
                f"the file does not compute what was trained: {len(done.unexplained)} images differ, not by "
                f"a tie, the first in {done.unexplained[0].layer or 'the output'}; nothing is kept"
            )
    off, on = f"onnxruntime, optimizations off: {done.off}", f"onnxruntime, optimizations on:  {done.on}"
    if not done.differences:
        return [off, on, "no image differs"]
    farthest = max(difference.from_tie for difference in done.differences)
    layers = ", ".join(dict.fromkeys(difference.layer for difference in done.differences))
    ties = f"each first at a code on a tie (at most {farthest:.1g} of a step from it), in {layers}"
    return [off, on, f"{len(done.differences)} images differ, {ties}"]


def _integers(
    network: nn.Module, images: Tensor, labels: Tensor, path: Path, format: str, names: Names
) -> list[str]:
    model = IntegerModel(network, images.shape[1:])
    with draft_of(path) as draft:
        sizes = [str(write_c(model, draft, names))] if format == "c" else []
        if format == "npz":
            write_npz(model, draft, names)
        done = model.compare(images)
        if model.program.is_exact and (done.differing_codes or done.logits.equal < len(images)):
            raise ValueError(
                f"the integers must equal what was trained, but {len(images) - done.logits.equal} images and "
                f"{done.differing_codes} codes differ; nothing is kept"
            )
        ran = _run_file(model, draft, format, model.codes(images), done.integers)
    accuracy = float((done.integers.argmax(axis=1) == labels.numpy()).mean())
    counts = [(name, *count) for name, count in done.codes.items() if count[0]]
    unequal = [f"  codes that differ in {name}: {differ:,} of {total:,}" for name, differ, total in counts]
    widest = max(model.program.accumulators, key=lambda one: one.largest)
    return [
        *sizes,
        ran,
        f"integers, {100 * accuracy:.2f} % right: {done.logits}",
        *(unequal or ["  no code differs"]),
        f"  no sum exceeds {widest.largest:,} ({widest.layer}); an int32 holds 2,147,483,647",
    ]


def _run_file(model: IntegerModel, file: Path, format: str, codes: IntArray, expected: IntArray) -> str:
    """Run the file and refuse it if it does not compute these logits. The answer says how it was run."""
    if format == "npz":
        logits, how = npz_logits(file, codes), "read back by qat/export/integers/reader.py"
    elif compiler := find_compiler():
        codes = codes[:C_IMAGES] - model.program.steps[0].settings["low"]
        logits = c_logits(compiler, file, codes, expected.shape[1])
        how = f"compiled by {Path(compiler).name} and run"
    else:
        return f"not compiled and not run: this machine has none of {', '.join(COMPILERS)}"
    if differ := int((logits != expected[: len(logits)]).any(axis=1).sum()):
        raise ValueError(
            f"the file does not compute the integers: {differ} of {len(logits)} images differ; "
            "nothing is kept"
        )
    return f"{how}: equal to the integers on {len(logits):,} test images"


def _size_table(run: TrainedRun) -> Table:
    """Bytes of each weight, of all weights with their share of the float network's, and of the file."""
    if run.classifier is None:
        raise ValueError("sizes must be left out with model: they are those of runs of train and compare")
    s: Any = run.classifier.hparams
    shape = tuple(s["input_shape"])
    example = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    build = partial(build_network, s["name"], shape, s["classes"], s["options"])
    columns = sizes_by_width(build, Quantization(**s["quantization"]), example)
    headers = (Column(name, justify="right") for name in columns)
    table = Table("weights of", *headers, title="bytes", title_justify="left")
    first, *_ = sizes = list(columns.values())
    for layer in first.layers:
        table.add_row(layer, *(f"{size.layers[layer]:,}" for size in sizes))
    table.add_row("all", *(f"{size.weights:,}" for size in sizes), style="bold")
    table.add_row("of float's", *(f"{size.weights / first.weights:.3f}" for size in sizes))
    table.add_section()
    table.add_row("file (C: constants)", *(f"{size.total:,}" for size in sizes), style="bold")
    return table
