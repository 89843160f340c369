"""The tour: experiments on custom gradients, each with expected and measured values and its graphs."""

from qat.tour.chapters import CHAPTERS
from qat.tour.gradient_rows import ROWS
from qat.tour.page import html_page, write_page
from qat.tour.run import run_tour

__all__ = ["CHAPTERS", "ROWS", "html_page", "run_tour", "write_page"]
