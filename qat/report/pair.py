"""Checkpointed and packed against plain training: the same run twice, one of them with less memory."""

import math
from dataclasses import dataclass

from qat.experiment.results import Result, Width, width
from qat.report.measures import ratio, saved_bytes, seconds_per_epoch
from qat.report.spread import numbered, short
from qat.report.widths import bits_text, widths

PLAIN = "ste"
SAVING = {
    "checkpointed": "checkpointing",
    "packed": "packing",
    "packed_checkpointed": "packing and checkpointing",
}
"""The setups that must equal the plain one, and what they do."""


@dataclass(frozen=True)
class Pair:
    """The runs of a setup that saves memory and of the plain one, with the same seeds.

    The three differences are the largest absolute ones over seeds and widths, NaN where a run holds NaN and
    None where no run recorded any. `unequal` of `tensors` entries of the final states have other digests. The
    ratios are the setup's over plain's.
    """

    setup: str
    seeds: list[int]
    widths: list[Width]  # of a comparison of several; else empty
    losses: float | None
    parameters: float | None
    buffers: float | None
    unequal: int
    tensors: int
    bytes_ratio: float
    time_ratio: float

    @property
    def compared(self) -> bool:
        """Whether some difference or digest was recorded."""
        return self.tensors > 0 or any(value is not None for value in self._differences)

    @property
    def identical(self) -> bool:
        """Whether nothing that was recorded differs, and something was recorded."""
        return self.compared and self.unequal == 0 and all(not value for value in self._differences)

    @property
    def _differences(self) -> tuple[float | None, float | None, float | None]:
        return self.losses, self.parameters, self.buffers


def pairs(results: list[Result]) -> list[Pair]:
    """Each setup of `SAVING` with `ste`, where a seed was trained in both at equal bits."""
    found = [_pair(setup, results) for setup in SAVING]
    return [pair for pair in found if pair is not None]


def _pair(setup: str, results: list[Result]) -> Pair | None:
    runs = {(run["setup"], run["seed"], width(run)): run for run in results}
    both = [
        (runs[setup, seed, bits], runs[PLAIN, seed, bits])
        for name, seed, bits in runs
        if name == PLAIN and (setup, seed, bits) in runs
    ]
    if not both:
        return None
    # The one that ended second holds it; where that is the plain one, it is the difference to `checkpointed`.
    holders = [pair if setup == "checkpointed" else pair[:1] for pair in both]
    recorded = [run["difference"] for runs in holders for run in runs if run.get("difference") is not None]
    digests = [
        saving["digests"].get(key) == plain["digests"].get(key)
        for saving, plain in both
        for key in {**saving["digests"], **plain["digests"]}
    ]
    first, second = [pair[0] for pair in both], [pair[1] for pair in both]
    return Pair(
        setup,
        sorted({plain["seed"] for plain in second}),
        widths(second) if len(widths(second)) > 1 else [],
        _largest([difference["losses"] for difference in recorded]),
        _largest([difference["parameters"] for difference in recorded]),
        _largest([difference["buffers"] for difference in recorded]),
        digests.count(False),
        len(digests),
        ratio(saved_bytes(first), saved_bytes(second)),
        ratio(seconds_per_epoch(first), seconds_per_epoch(second)),
    )


def pair_reading(pair: Pair) -> str:
    """Whether the two runs are the same, and what the setup cost and saved."""
    both, seeds = f"`{pair.setup}` and `{PLAIN}`", numbered("seed", pair.seeds)
    if pair.widths:
        seeds += f"; {bits_text(pair.widths)}"
    if not pair.compared:
        text = f"Whether {both} are equal was not recorded ({seeds})"
    elif pair.identical and pair.losses is None:
        text = f"{both} end in the same state to the last bit ({seeds})"
    elif pair.identical:
        text = f"{both} are the same training to the last bit ({seeds})"
    else:
        differences = {"losses": pair.losses, "weights": pair.parameters, "buffers": pair.buffers}
        where = [name for name, value in differences.items() if value is not None and value != 0]
        if pair.unequal:
            where.append(f"{pair.unequal} of {pair.tensors} digests of the final states")
        text = f"NOT EQUAL: {both} differ in {', '.join(where)} ({seeds})"
    costs = {
        "kept {:.2f} times the bytes": pair.bytes_ratio,
        "took {:.2f} times the seconds": pair.time_ratio,
    }
    parts = [words.format(value) for words, value in costs.items() if not math.isnan(value)]
    return text + (f"; {SAVING[pair.setup]} {' and '.join(parts)}" if parts else "") + "."


def difference_text(value: float | None) -> str:
    """One of the pair's differences as a cell of the table."""
    return "not recorded" if value is None else short(value)


def _largest(values: list[float]) -> float | None:
    if not values:
        return None
    return math.nan if any(math.isnan(value) for value in values) else max(abs(value) for value in values)
