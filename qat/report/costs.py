"""What the layers cost: bits, operations and bytes, as the runs recorded them."""

from qat.experiment.results import Result
from qat.report.measures import ratio
from qat.report.spread import listing

PREFERRED = "ste"  # whose layers are shown, where it has recorded them
FLOAT = 32
CAPTION = (
    "The layers of `{}`: bits and scales of weight / input, counts for one sample, the packed weight's bytes."
)
HEADER = ["layer", "kind", "bits", "rounding", "scale", "MACs", "bit operations", "bytes"]


def costing(results: list[Result]) -> Result | None:
    """The run whose layers are shown: the first quantized one with a record, `ste` before others."""
    known = [run for run in results if run.get("summary") and run["setup"] != "float"]
    return min(known, key=lambda run: run["setup"] != PREFERRED, default=None)


def cost_rows(run: Result) -> list[list[str]]:
    """A row for each layer, one for all of them, and one for the same network in float."""
    found = run["summary"]
    rows = [
        [
            *(f"`{row['name']}`", row["kind"], f"{_bits(row['weight_bits'])} / {_bits(row['input_bits'])}"),
            *(row["rounding"], _once(row["scale"])),
            *(f"{row[name]:,.0f}" for name in ("macs", "bit_operations", "weight_bytes")),
        ]
        for row in found["rows"]
    ]
    for title, operations, size in (
        ("all layers", "bit_operations", "weight_bytes"),
        ("all in float", "float_bit_operations", "float_bytes"),
    ):
        counts = [f"{found[name]:,.0f}" for name in ("macs", operations, size)]
        rows.append([title, *[""] * 4, *counts])
    return rows


def costs_reading(run: Result) -> str:
    """What quantization saves beside float, and what computes in float all the same."""
    found = run["summary"]
    size = 100 * ratio(found["weight_bytes"], found["float_bytes"])
    work = 100 * ratio(found["bit_operations"], found["float_bit_operations"])
    text = f"The weights of `{run['setup']}` take {size:.1f}\u00a0% of float's bytes"
    text += f", a sample {work:.1f}\u00a0% of its bit operations (MACs times both widths)"
    if found["left_float"]:
        names = found["left_float"]
        text += f"; left in float: {listing(names) if len(names) <= 3 else f'{len(names)} parts'}"
    return text + "."


def _once(scale: str) -> str:
    """Where weight and input have the same scale, said once."""
    return " / ".join(dict.fromkeys(scale.split("/")))


def _bits(bits: float) -> str:
    return "float" if bits == FLOAT else f"{bits:.0f}"
