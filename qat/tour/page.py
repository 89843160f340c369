"""The tour as one HTML page that loads nothing else."""

import inspect
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from qat.tour.drawing import draw
from qat.tour.experiment import Chapter, Finished
from qat.tour.text import readable
from qat.whole_file import write_whole


def html_page(tour: Iterable[tuple[Chapter, Finished]]) -> str:
    """The whole page, of what `run_tour` yields."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"readable": readable, "draw": draw, "source": inspect.getsource}
    chapters = [
        (chapter, [one for _, one in group]) for chapter, group in groupby(tour, lambda pair: pair[0])
    ]
    return environment.get_template("page.html").render(tour=chapters)


def write_page(path: str | Path, tour: Iterable[tuple[Chapter, Finished]]) -> Path:
    """Write the page; an existing file is replaced at once and is never half-written.

    Raises:
        ValueError: the folder does not exist or is not writable, or the path is a folder.
    """
    return write_whole(path, html_page(tour))
