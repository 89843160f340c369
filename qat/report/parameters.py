"""The figure of what learns: gradient and way of each parameter, setup by setup."""

import math

from qat.report.drawing import Picture, heat_map, new_figure
from qat.report.groups import Groups
from qat.report.spread import SeedSpread, joined, short


def parameters(groups: Groups) -> Picture:
    """Three heat maps with a row for each parameter and a column for each setup, on logarithmic scales.

    They show the mean norm of the gradient in the first and in the last epoch and the mean distance moved.
    """
    names, setups = groups.parameters, list(groups.by_setup)
    panels: dict[str, list[list[SeedSpread | None]]] = {
        "Gradient, first epoch": [[next(iter(g.gradient(n)), None) for g in groups.every] for n in names],
        "Gradient, last epoch": [[next(iter(g.gradient(n)[1:]), None) for g in groups.every] for n in names],
        "Distance moved": [[g.moved(n) for g in groups.every] for n in names],
    }
    with new_figure(90 + 17 * len(names)) as figure:
        for ax, (title, spreads) in zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True):
            ax.set_title(title)
            values = [[math.log10(s.mean) if s and s.mean > 0 else None for s in line] for line in spreads]
            few = len(setups) <= 5  # else the numbers do not fit into the cells; the table has them
            texts = [[_text(spread, few) for spread in line] for line in spreads]
            heat_map(ax, values, texts, names, setups)
    alt = (
        f"Heat maps of {len(names)} parameters for {joined(setups)}: gradient norm in the first and in "
        "the last epoch and distance moved; the table holds the values"
    )
    return Picture("layers", alt, figure)


def _text(spread: SeedSpread | None, few: bool) -> str:
    if spread is None:
        return ""
    return short(spread.mean) if few or not spread.mean or math.isnan(spread.mean) else ""
