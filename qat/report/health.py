"""How the quantizers fared in the last epoch, and which of them look ill."""

import math

from qat.experiment.results import Result, Runs, by_setup
from qat.report.settings import ABSENT
from qat.report.spread import Spread, listing, short
from qat.training.health import COARSE
from qat.training.health import LIMITS as REMEDIES

BAD = "! "  # what a marked cell begins with
# Shares above which a layer is marked. Weights are meant to stand still at the end, but not all of them.
LIMITS = {"clipped": 0.1, "unchanged": 0.9999, "oscillating": 0.2}
SCALES = ("weight_scale", "activation_scale")
CAPTION = (
    "The last epoch, of all seeds the worst share and the mean scale. An exclamation mark stands where more "
    "than 10 % of the activations are clipped, no weight changed its code, more than 20 % of the weights of "
    "at most 4 bits swing between codes, or a scale is not positive."
)
HEADER = ["setup", "layer", "clipped", "unchanged", "oscillating", "weight scale", "activation scale"]


def health_rows(results: list[Result]) -> list[list[str]]:
    """A row for each setup and layer with a record."""
    return [
        [
            f"`{setup}`",
            f"`{layer}`",
            *(_fraction(_last(runs, layer, name), _limit(runs, layer, name)) for name in LIMITS),
            *(_scale(_last(runs, layer, name)) for name in SCALES),
        ]
        for setup, runs in by_setup(results).items()
        for layer in dict.fromkeys(layer for run in runs for layer in run.get("health") or {})
    ]


def health_reading(results: list[Result]) -> str:
    """How many marks there are, and where."""
    rows = health_rows(results)
    marked = [row for row in rows if any(cell.startswith(BAD) for cell in row)]
    if not marked:
        return "No layer is marked."
    setups = dict.fromkeys(row[0].strip("`") for row in marked)
    kinds = {name: column for column, name in enumerate(REMEDIES, 2)}
    ill = [name for name, column in kinds.items() if any(row[column].startswith(BAD) for row in rows)]
    advice = "".join(f" Where it is `{name}`, try {REMEDIES[name].remedy}." for name in ill)
    return f"{len(marked)} of {len(rows)} rows are marked, of {listing(setups)}.{advice}"


def _limit(runs: Runs, layer: str, name: str) -> float:
    """Above which share a layer is marked; on a fine grid codes swing with every step and do no harm."""
    rows = [row for run in runs for row in (run.get("summary") or {}).get("rows", [])]
    fine = any(row["weight_bits"] > COARSE for row in rows if row["name"] == layer)
    return math.inf if name == "oscillating" and fine else LIMITS[name]


def _last(runs: Runs, layer: str, name: str) -> list[float]:
    """The value of each seed after its last epoch, where it has one; NaN is an epoch that trained float."""
    series = [(run.get("health") or {}).get(layer, {}).get(name, []) for run in runs]
    return [
        values[-1] for values in series if values and values[-1] is not None and math.isfinite(values[-1])
    ]


def _fraction(values: list[float], limit: float) -> str:
    if not values:
        return ABSENT
    worst = max(values)
    return f"{BAD if worst > limit else ''}{100 * worst:.1f}\u00a0%"


def _scale(values: list[float]) -> str:
    if not values:
        return ABSENT
    return short(Spread.of(values).mean) if min(values) > 0 else f"{BAD}{short(min(values))}"
