"""The verb `export`: a run as ONNX, npz or C, compared with what was trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from torch import Tensor, nn

from qat.cli.exits import BAD_INPUT, leave
from qat.cli.parser import OneLineParser
from qat.cli.quiet import quiet
from qat.cli.size_table import size_table
from qat.export import (
    COMPILERS,
    CSource,
    IntegerAgreement,
    IntegerModel,
    Sizes,
    Verification,
    c_logits,
    export_onnx,
    find_compiler,
    npz_logits,
    sizes_by_width,
    verify,
    write_c,
    write_npz,
)
from qat.layers import Quantization
from qat.names import one_line
from qat.training.network import build_network
from qat.training.trained_run import TrainedRun, load_run
from qat.whole_file import draft_of

C_IMAGES = 1000  # images of the test set that the compiled C file runs on


def main(argv: Sequence[str] | None = None) -> None:
    """Run the verb; `argv` holds its arguments and is by default the process's own.

    Raises:
        SystemExit: 2 for bad input, 130 when stopped with Ctrl-C.
    """
    quiet()
    parser = OneLineParser(description=export.__doc__.partition("\n")[0], allow_abbrev=False)  # type: ignore[union-attr]
    parser.add_function_arguments(export, as_group=False, as_positional=True)
    try:
        export(**vars(parser.parse_args(None if argv is None else list(argv))))
    except BAD_INPUT as error:
        leave(f"error: {one_line(error)}", 2)
    except KeyboardInterrupt:
        leave("stopped", 130)


def export(
    run: str,
    format: Literal["onnx", "npz", "c"] = "onnx",
    out: str | None = None,
    opset: int = 25,
    fold: bool = False,
    sizes: bool = False,
    ckpt_path: str | None = None,
    data: str | None = None,
    data_root: str | None = None,
) -> None:
    """Export a trained run, and compare the file with the trained network on the test set.

    Args:
        run: Folder of a run of `train` or `compare`, or a .ckpt file.
        format: Format of the file.
        out: Path of the exported file; by default model.onnx, model.npz or model.c.
        opset: ONNX opset, 21 to 25; 2-bit types need 25.
        fold: ONNX only: fold BatchNorm into scales and biases.
        sizes: Print the bytes of each layer at 8, 4 and 2 bits, and write no file.
        ckpt_path: The .ckpt file to export; by default the last one of the run.
        data: Name of the data set, if it is not stored in the folder of the run.
        data_root: Folder of the data; by default the one that the run used.
    """
    trained = load_run(run, ckpt_path, data, data_root)
    if sizes:
        Console(width=160).print(size_table(_sizes(trained)))
        return
    images, labels = trained.test_set()
    path = Path(out or f"model.{format}")
    if format == "onnx":
        lines = _onnx(trained, images, path, opset, fold)
    else:
        lines = _integers(trained, images, labels, path, format)
    print(f"written to {path}: {path.stat().st_size:,} bytes", *lines, sep="\n")


def _sizes(run: TrainedRun) -> dict[str, Sizes]:
    s: Any = run.classifier.hparams
    shape = tuple(s["input_shape"])
    example = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))

    def build() -> nn.Module:
        return build_network(s["name"], shape, s["classes"], s["options"])

    return sizes_by_width(build, Quantization(**s["quantization"]), example)


def _onnx(run: TrainedRun, images: Tensor, path: Path, opset: int, fold: bool) -> list[str]:
    network: Any = run.classifier.model
    with draft_of(path) as draft:
        export_onnx(network, images[:2], draft, opset=opset, fold=fold, run=str(run.ckpt))
        done = verify(network, draft, images)
        if done.unexplained:
            raise ValueError(
                f"the file does not compute what was trained: {len(done.unexplained)} images differ, not by "
                f"a tie, the first in {done.unexplained[0].layer or 'the output'}; nothing is kept"
            )
    off, on = f"onnxruntime, optimizations off: {done.off}", f"onnxruntime, optimizations on:  {done.on}"
    return [off, on, _differences(done)]


def _differences(done: Verification) -> str:
    if not done.differences:
        return "no image differs"
    farthest = max(difference.from_tie for difference in done.differences)
    layers = ", ".join(dict.fromkeys(difference.layer for difference in done.differences))
    return (
        f"{len(done.differences)} images differ, each first at a code on a tie (at most {farthest:.1g} of a "
        f"step from it), in {layers}"
    )


def _integers(run: TrainedRun, images: Tensor, labels: Tensor, path: Path, format: str) -> list[str]:
    network: Any = run.classifier.model
    model = IntegerModel(network, images.shape[1:])
    with draft_of(path) as draft:
        source = write_c(model, draft) if format == "c" else None
        if source is None:
            write_npz(model, draft)
        done = model.compare(images)
        if model.program.is_exact and (done.differing_codes or done.logits.equal < len(images)):
            raise ValueError(
                f"the integers must equal what was trained, but {len(images) - done.logits.equal} images and "
                f"{done.differing_codes} codes differ; nothing is kept"
            )
        ran = _run_file(model, draft, source, images, done)
    accuracy = float((done.classes == labels.numpy()).mean())
    unequal = [(name, *counts) for name, counts in done.codes.items() if counts[0]]
    widest = max(model.accumulators, key=lambda one: one.largest)
    return [
        *([str(source)] if source else []),
        ran,
        f"integers, {100 * accuracy:.2f} % right: {done.logits}",
        *(f"  codes that differ in {name}: {differ:,} of {total:,}" for name, differ, total in unequal),
        *([] if unequal else ["  no code differs"]),
        f"  no sum exceeds {widest.largest:,} ({widest.layer}); an int32 holds 2,147,483,647",
    ]


def _run_file(
    model: IntegerModel, file: Path, source: CSource | None, images: Tensor, done: IntegerAgreement
) -> str:
    """Run the file and refuse it if it does not compute the integers. The answer says how it was run."""
    codes = model.codes(images)
    if source is None:
        logits, how = npz_logits(file, codes), "read back by qat/export/integers/reader.py"
    else:
        compiler = find_compiler()
        if compiler is None:
            return f"not compiled and not run: this machine has none of {', '.join(COMPILERS)}"
        low = model.program.steps[0].settings["low"]
        logits = c_logits(compiler, file, codes[:C_IMAGES] - low, done.integers.shape[1])
        how = f"compiled by {Path(compiler).name} and run"
    differ = int((logits != done.integers[: len(logits)]).any(axis=1).sum())
    if differ:
        raise ValueError(
            f"the file does not compute the integers: {differ} of {len(logits)} images differ; "
            "nothing is kept"
        )
    return f"{how}: equal to the integers on {len(logits):,} test images"
