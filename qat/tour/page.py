"""The tour as one HTML page that loads nothing else."""

import inspect
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from qat.tour.drawing import draw
from qat.tour.experiment import Chapter, Finished
from qat.tour.text import readable


def html_page(tour: Iterable[tuple[Chapter, Finished]]) -> str:
    """The whole page, of what `run_tour` yields."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"readable": readable, "draw": draw, "source": inspect.getsource}
    groups = groupby(tour, itemgetter(0))
    chapters = [(chapter, [finished for _, finished in group]) for chapter, group in groups]
    return environment.get_template("page.html").render(tour=chapters)
