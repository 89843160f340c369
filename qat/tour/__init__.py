"""The tour: experiments on custom gradients, each with expected and measured values and its graphs."""

from qat.tour.chapters import load_chapters
from qat.tour.experiment import run_tour
from qat.tour.gradient_rows import ROWS
from qat.tour.page import html_page

CHAPTERS = load_chapters()

__all__ = ["CHAPTERS", "ROWS", "html_page", "run_tour"]
