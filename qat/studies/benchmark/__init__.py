"""The benchmark: what quantizing costs, beside float training, other frameworks and the memory itself."""

from qat.studies.benchmark.cli import main

__all__ = ["main"]
