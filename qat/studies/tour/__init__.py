"""The tour: custom gradients by hand, experiment by experiment, expected and measured."""

from qat.studies.tour.cli import CHAPTERS, main, run_tour

__all__ = ["CHAPTERS", "main", "run_tour"]
