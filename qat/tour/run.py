"""The whole tour."""

from collections.abc import Callable, Sequence
from itertools import count

from qat.tour.chapters import CHAPTERS
from qat.tour.experiment import Chapter, Finished, run_experiment


def run_tour(
    chapters: Sequence[Chapter] = CHAPTERS, show: Callable[[Chapter, Finished | None], None] | None = None
) -> list[tuple[Chapter, list[Finished]]]:
    """Run all experiments in order.

    Args:
        chapters: what to run.
        show: called with each chapter and None when the chapter begins, and with each finished experiment.
    """
    tour, numbers = [], count(1)
    for chapter in chapters:
        if show:
            show(chapter, None)
        finished = []
        for subject in chapter.experiments:
            finished.append(run_experiment(subject, next(numbers)))
            if show:
                show(chapter, finished[-1])
        tour.append((chapter, finished))
    return tour
