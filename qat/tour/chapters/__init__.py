"""The chapters of the tour, in order."""

from qat.tour.chapters import causes, check, context, contract, losses, need, recompute, second, stable

CHAPTERS = tuple(
    part.CHAPTER for part in (need, contract, context, recompute, check, second, causes, stable, losses)
)
