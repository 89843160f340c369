"""What the report says, block by block."""

from functools import partial

from qat.experiment.results import Result, by_setup
from qat.report.bits_figure import bits_alt, bits_figure
from qat.report.bits_reading import accuracy_caption, accuracy_table, bits_reading
from qat.report.blocks import Block, Drawing, Heading, Rows, Text
from qat.report.costs import CAPTION as COSTS_CAPTION
from qat.report.costs import HEADER as COSTS
from qat.report.costs import cost_rows, costing, costs_reading
from qat.report.curves_figure import curves_alt, curves_figure
from qat.report.health import CAPTION, health_reading, health_rows
from qat.report.health import HEADER as HEALTH
from qat.report.layers_figure import layers_alt, layers_figure
from qat.report.pair import difference_text, pair_reading, pairs
from qat.report.parameters import gradient, layers_reading, moved, parameter_names
from qat.report.reading import curves_reading, headline, table_reading
from qat.report.settings import ABSENT, same_and_different, settings_reading
from qat.report.spread import short
from qat.report.table import summary
from qat.report.widths import at_width, bits_text, detail_width, widths


def title(results: list[Result]) -> str:
    """The report's title: the network and the data, where the settings name them."""
    settings = results[0]["settings"]
    names = [str(settings[key]) for key in ("model", "data") if isinstance(settings.get(key), str)]
    return "Gradients compared" + (": " + " on ".join(names) if names else "")


def content(results: list[Result]) -> list[Block]:
    """All of the report below its title; of several widths one is shown in detail."""
    if len(widths(results)) < 2:
        return [Text(headline(results), "headline"), *_detail(results), *_whole(results)]
    bits = detail_width(results)
    one = at_width(results, bits)
    why = "the narrowest" if bits == widths(results)[-1] else "the narrowest of those with the most setups"
    note = f"Training, cost and what learns follow for one width, {bits_text([bits])}: {why}."
    return [
        Text(headline(results), "headline"),
        *_bits_blocks(results),
        Text(note, "note"),
        *_detail(one, at=f" at {bits_text([bits])}"),
        *_whole(results),
    ]


def _bits_blocks(results: list[Result]) -> list[Block]:
    return [
        Heading("Accuracy over bits"),
        Drawing("bits", bits_alt(results), partial(bits_figure, results)),
        Text(bits_reading(results), "reading"),
        Rows(accuracy_caption(results), *accuracy_table(results)),
    ]


def _detail(results: list[Result], at: str = "") -> list[Block]:
    """What one width shows."""
    return [
        Heading(f"Training{at}"),
        Drawing("curves", curves_alt(results), partial(curves_figure, results)),
        Text(curves_reading(results), "reading"),
        Heading(f"Result and cost{at}"),
        Rows(
            "Mean of the seeds ± the largest distance of a seed from it. Epochs count from 1 and validation "
            "accuracy decides them; seconds are the median epoch; saved MB (10⁶ bytes) are what autograd "
            "keeps for the backward of one batch.",
            *summary(results),
        ),
        Text(table_reading(results), "reading"),
        Heading(f"What learns{at}"),
        Text(
            "A rounding whose gradient is zero stops all that flows back through it: what lies before it "
            "cannot learn. Exact zeros stand in the shaded column marked 0.",
            "note",
        ),
        Drawing("layers", layers_alt(results), partial(layers_figure, results)),
        Text(layers_reading(results), "reading"),
        _layers_table(results),
        *_costs_blocks(results, at),
        *_health_blocks(results, at),
    ]


def _whole(results: list[Result]) -> list[Block]:
    """What holds for all runs, whatever their width."""
    return [
        *_pair_blocks(results),
        Heading("Settings, seeds and versions"),
        *_settings_tables(results),
        Text(settings_reading(results), "reading"),
    ]


def _costs_blocks(results: list[Result], at: str) -> list[Block]:
    run = costing(results)
    if run is None:
        return []
    return [
        Heading(f"What the layers cost{at}"),
        Rows(COSTS_CAPTION.format(run["setup"]), COSTS, cost_rows(run)),
        Text(costs_reading(run), "reading"),
    ]


def _health_blocks(results: list[Result], at: str) -> list[Block]:
    rows = health_rows(results)
    if not rows:
        return []
    return [
        Heading(f"Health of the quantizers{at}"),
        Rows(CAPTION, HEALTH, rows),
        Text(health_reading(results), "reading"),
    ]


def _layers_table(results: list[Result]) -> Rows:
    setups = by_setup(results)
    header = ["parameter"]
    for name in setups:
        header += [f"`{name}` gradient", f"`{name}` moved"]
    rows = []
    for name in parameter_names(results):
        row = [f"`{name}`"]
        for runs in setups.values():
            norms, distance = gradient(runs, name), moved(runs, name)
            row.append(ABSENT if norms is None else _arrow(short(norms[0].mean), short(norms[1].mean)))
            row.append(ABSENT if distance is None else short(distance.mean))
        rows.append(row)
    caption = (
        "L2 norms, means of the seeds: the gradient in the first → the last epoch, and the distance moved."
    )
    return Rows(caption, header, rows)


def _arrow(first: str, last: str) -> str:
    return first if first == last == "0" else f"{first} → {last}"


def _pair_blocks(results: list[Result]) -> list[Block]:
    found = pairs(results)
    if not found:
        return []
    rows = [
        ["largest difference in losses", *(difference_text(pair.losses) for pair in found)],
        ["largest difference in weights", *(difference_text(pair.parameters) for pair in found)],
        ["largest difference in buffers", *(difference_text(pair.buffers) for pair in found)],
        [
            "entries of the final states with other digests",
            *(f"{pair.unequal} of {pair.tensors}" for pair in found),
        ],
        ["saved bytes / plain", *(short(pair.bytes_ratio) for pair in found)],
        ["seconds per epoch / plain", *(short(pair.time_ratio) for pair in found)],
    ]
    return [
        Heading("Less memory against plain"),
        Rows(
            "The same training with the blocks' activations computed again, or kept as codes.",
            ["", *(f"`{pair.setup}`" for pair in found)],
            rows,
            text=True,
        ),
        *(
            Text(pair_reading(pair), "alarm" if pair.compared and not pair.identical else "reading")
            for pair in found
        ),
    ]


def _settings_tables(results: list[Result]) -> list[Block]:
    setups = by_setup(results)
    same, different = same_and_different(results, "settings")
    versions, changed = same_and_different(results, "versions")
    blocks: list[Block] = []
    rows = [["seeds", *(", ".join(str(run["seed"]) for run in runs) for runs in setups.values())]]
    rows += [[f"`{name}`", *values.values()] for name, values in {**different, **changed}.items()]
    blocks.append(
        Rows("What each setup has for itself.", ["", *(f"`{name}`" for name in setups)], rows, text=True)
    )
    shared = [[f"`{name}`", value] for name, value in {**same, **versions}.items()]
    if shared:
        blocks.append(Rows("What all runs share.", ["", "value"], shared, text=True))
    return blocks
