"""An integer network as one C99 file: weights as constant arrays, integers only, no heap."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from qat.export.c.network import Network
from qat.export.integers.model import IntegerModel
from qat.export.integers.program import Step
from qat.whole_file import write_whole


def in_comment(name: str) -> str:
    """A name as part of a comment in C: all but letters, digits and `/.-_ ` as in a URL (`*` is %2A).

    So it cannot end the comment, continue it in another line, or show something else than the compiler reads.
    """
    return quote(name, safe="/.-_ ", errors="surrogatepass")


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    variable_start_string="${",  # C is full of braces
    variable_end_string="}",
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters["in_comment"] = in_comment


@dataclass(frozen=True)
class CSource:
    """A network as C."""

    text: str = field(repr=False)  # the content of the file
    flash: int  # bytes of its constants
    weights: int  # bytes of weights among them
    ram: int  # bytes of its static variables
    wide: dict[str, int]  # the layers whose values stay float in training, in C 32 bits -> bytes among them

    def __str__(self) -> str:
        text = f"flash {self.flash:,} bytes ({self.weights:,} of weights) and code, RAM {self.ram:,} bytes"
        parts = "; ".join(f"{layer} {size:,}" for layer, size in self.wide.items())
        return f"{text} (of these, for values that no quantizer rounds: {parts})" if parts else text


def write_c(model: IntegerModel, path: str | Path, class_names: Sequence[str] | None = None) -> CSource:
    """Write a network in integers as one C99 file with `int predict(const uint8_t *input, int32_t *logits)`.

    `predict` takes the codes of the input; `predict_pixels` takes pixel bytes, and first replaces them by
    their codes where they differ, with a table of 256 bytes.

    It includes <stdint.h> alone, and gives the predictions and logits of `model` to the last bit. With class
    names it has `const char *predict_class_name(int number)` too. The file is written whole or not at all.

    Raises:
        ValueError: a weight or an activation has more than 8 bits; there is not one name for each class.
    """
    source = c_source(model, class_names)
    write_whole(path, source.text)
    return source


def c_source(model: IntegerModel, class_names: Sequence[str] | None = None) -> CSource:
    """The content of the file and its sizes; see `write_c`."""
    _check_bits(model.program.steps)
    lowest = model.program.steps[0].settings["low"]
    network = Network(
        model.program, (model.pixel_codes() - lowest).tolist(), model.check_class_names(class_names)
    )
    text = TEMPLATES.get_template("network.c").render(vars(network))
    return CSource(text, network.flash, network.weights, network.ram, model.program.wide)


def _check_bits(steps: list[Step]) -> None:
    for step in steps[:-1]:
        if step.op == "conv" and step.settings["bits"] > 8:
            raise ValueError(
                f"{step.layer}: C holds weights of 1 to 8 bits, got {step.settings['bits']}; export it as npz"
            )
        on_grid = step.op in ("input", "rescale") and not step.layer.endswith("/fine")
        if on_grid and step.settings["high"] - step.settings["low"] > 255:
            raise ValueError(f"{step.layer}: C holds activations of 1 to 8 bits, got more; export it as npz")
