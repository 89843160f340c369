"""An experiment of the tour: expected values, fixed in the code, and the values that are measured now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from qat.tour.errors import error_text
from qat.tour.expectation import agrees
from qat.tour.graph import TracedGraph

Measure = Callable[[], "Measured"]
MISSING = "(missing)"  # stands for a value that only one side has; it never equals a value of the other side


@dataclass(frozen=True)
class Measured:
    """The values that an experiment measured, by name, and the graphs on which it measured them."""

    values: dict[str, Any]
    graphs: Sequence[TracedGraph] = ()

    def plus(self, values: dict[str, Any]) -> "Measured":
        """The same with more values."""
        return Measured(self.values | values, self.graphs)


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Attributes:
        title: what it shows.
        why: the explanation, in one or two short sentences.
        expected: numbers, text, (nested) lists and tuples, `AtMost` or `Contains`, by name.
        measure: runs the experiment; its values have the names of `expected`.
    """

    title: str
    why: str
    expected: dict[str, Any]
    measure: Callable[[], Measured]


@dataclass(frozen=True)
class Chapter:
    """Experiments on one subject."""

    title: str
    experiments: list[Experiment] = field(default_factory=list)

    def experiment(self, title: str, *, why: str, expected: dict[str, Any]) -> Callable[[Measure], Measure]:
        """Add the decorated function as an experiment."""

        def add(measure: Measure) -> Measure:
            self.experiments.append(Experiment(title, why, expected, measure))
            return measure

        return add


@dataclass(frozen=True)
class ComparedValue:
    """One expected value and the measured one."""

    name: str
    expected: Any
    measured: Any

    @property
    def ok(self) -> bool:
        return agrees(self.expected, self.measured)


@dataclass(frozen=True)
class Finished:
    """An experiment that has run."""

    experiment: Experiment
    findings: tuple[ComparedValue, ...]
    graphs: tuple[TracedGraph, ...]
    number: int = 1  # its place in the tour

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)


def run_experiment(subject: Experiment, number: int = 1) -> Finished:
    """Run one experiment. Random state, grad mode and the number of threads are restored afterwards.

    If it raises an error, the error is its measured value, so that the other experiments still run. Where a
    graph was compared with central differences, the comparison is one more finding.
    """
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # sums in one order, and timings that do not wait for other programs
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            result = subject.measure()
    except Exception as error:
        result = Measured(dict.fromkeys(subject.expected, error_text(error)))
    finally:
        torch.set_num_threads(threads)
    findings = [
        ComparedValue(
            name, subject.expected.get(name, MISSING), _without_tensors(result.values.get(name, MISSING))
        )
        for name in subject.expected | result.values
    ]
    compared = [graph for graph in result.graphs if graph.leaves_agree is not None]
    for graph in compared:
        name = "finite differences" + (f", {graph.caption}" if len(compared) > 1 else "")
        measured = "agree" if graph.leaves_agree else "differ"
        findings.append(ComparedValue(name, "differ" if graph.differs else "agree", measured))
    return Finished(subject, tuple(findings), tuple(result.graphs), number)


def _without_tensors(value: Any) -> Any:
    """The value with a list in place of each tensor."""
    if isinstance(value, Tensor):
        return value.detach().tolist()
    return type(value)(map(_without_tensors, value)) if isinstance(value, (list, tuple)) else value
