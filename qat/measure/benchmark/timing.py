"""What was measured of one candidate, and how it compares to another."""

from dataclasses import dataclass, field
from statistics import median, quantiles


@dataclass
class Timing:
    """The seconds of one call, once a round.

    Args:
        name: of the candidate.
        path: how its quantizers ran; empty where it has none.
        seconds: one for each round; the rounds are those of every other candidate that ran.
        missing: why it could not run here.
        error: what it raised instead.
    """

    name: str
    path: str = ""
    seconds: list[float] = field(default_factory=list)
    missing: str = ""
    error: str = ""

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Between the quartiles, in seconds; 0 of a single round."""
        if len(self.seconds) == 1:
            return 0.0
        low, _, high = quantiles(self.seconds, n=4, method="inclusive")
        return high - low

    def ratio(self, other: "Timing") -> float:
        """How many times as long as the other it took: the median over the rounds, each compared to itself.

        What slows a whole round down, slows both.
        """
        return median(mine / its for mine, its in zip(self.seconds, other.seconds, strict=True))
