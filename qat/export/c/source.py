"""An integer network as one C99 file: weights as constant arrays, integers only, no heap."""

from dataclasses import dataclass
from math import prod
from pathlib import Path

from qat.export.c.helpers import CLAMPED, CODE_AT, DIVIDED, HEAD, SHIFTED
from qat.export.c.steps import StepWriter
from qat.export.integers.integer import IntegerModel
from qat.export.integers.program import Step
from qat.whole_file import write_whole


@dataclass(frozen=True)
class CSource:
    """A network as C.

    Args:
        text: the whole file.
        flash: bytes of its constants.
        weights: bytes of weights among them.
        ram: bytes of its static variables.
    """

    text: str
    flash: int
    weights: int
    ram: int


def write_c(model: IntegerModel, path: str | Path) -> CSource:
    """Write a network in integers as one C99 file with `int predict(const uint8_t *input, int32_t *logits)`.

    It uses <stdint.h> alone, and gives the predictions and logits of `model` to the last bit.

    Args:
        model: in integers; weights and activations of 1 to 8 bits.
        path: of the file; it is written whole or not at all.

    Returns:
        The source and its sizes.

    Raises:
        ValueError: a weight or an activation has more bits.
    """
    source = c_source(model)
    write_whole(path, source.text.encode())
    return source


def c_source(model: IntegerModel) -> CSource:
    """The file's content and sizes; see `write_c`."""
    _check_bits(model.program.steps)
    writer = StepWriter(model.program.steps)
    body = "".join(writer.step(number, step) for number, step in enumerate(model.program.steps))
    first, last = model.program.steps[0], model.program.steps[-1]
    head = HEAD.format(
        input="{} codes of {}, as C, H, W".format(prod(first.shape), " x ".join(map(str, first.shape))),
        input_scale=model.program.input_scale,
        low=first.settings["low"],
        high=first.settings["high"],
        classes=last.shape[0],
        output_scale=model.program.output_scale,
        flash=writer.flash,
        weights=writer.weights,
        ram=writer.ram,
    )
    helpers = [CODE_AT, SHIFTED, *([DIVIDED] if "divided(" in body else []), CLAMPED]
    text = "".join([head, *helpers, writer.variables(), body, writer.predict()])
    return CSource(text, writer.flash, writer.weights, writer.ram)


def _check_bits(steps: list[Step]) -> None:
    for step in steps[:-1]:
        if step.op == "conv" and step.settings["bits"] > 8:
            raise ValueError(
                f"{step.layer}: C holds weights of 1 to 8 bits, got {step.settings['bits']}; use --format npz"
            )
        on_grid = step.op in ("input", "rescale") and not step.layer.endswith("/fine")
        if on_grid and step.settings["high"] - step.settings["low"] > 255:
            raise ValueError(f"{step.layer}: C holds activations of 1 to 8 bits, got more; use --format npz")
