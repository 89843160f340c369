"""The benchmark: what quantizing costs, beside the memory's own speed, float training and other frameworks."""

from qat.studies.benchmark.cli import main

__all__ = ["main"]
