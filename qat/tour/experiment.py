"""An experiment of the tour: expected values, fixed in a file, and the values that are measured now."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qat.tour.errors import error_text
from qat.tour.expectation import agrees
from qat.tour.graph import TracedGraph

Measured = tuple[dict[str, Any], Sequence[TracedGraph]]  # values by name, and graphs that were run
MISSING = "(missing)"  # stands for a value that only one side has; it never equals a value of the other side


@dataclass(frozen=True)
class Experiment:
    """One experiment: what it shows, and the function that runs it."""

    measure: Callable[[], Measured]  # its values have the names of `expected`
    title: str
    why: str  # the explanation, in one or two short sentences
    expected: dict[str, Any]  # values by name, as `agrees` compares them


class Chapter(NamedTuple):
    """Experiments on one subject."""

    title: str
    experiments: list[Experiment]


class ComparedValue(NamedTuple):
    """One expected value and the measured one."""

    name: str
    expected: Any
    measured: Any
    ok: bool


@dataclass(frozen=True)
class Finished:
    """An experiment that has run."""

    experiment: Experiment
    number: int  # its place in the tour
    findings: list[ComparedValue]
    graphs: Sequence[TracedGraph]

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)


def run_tour(chapters: Sequence[Chapter]) -> Iterator[tuple[Chapter, Finished]]:
    """Run all experiments in order; each is yielded with its chapter as soon as it has finished."""
    experiments = [(chapter, experiment) for chapter in chapters for experiment in chapter.experiments]
    for number, (chapter, experiment) in enumerate(experiments, 1):
        yield chapter, run_experiment(experiment, number)


def run_experiment(experiment: Experiment, number: int = 1) -> Finished:
    """Run one experiment. Random state, grad mode and the number of threads are restored afterwards.

    If it raises an error, the error is its measured value, so that the other experiments still run. Where a
    graph was compared with central differences, the comparison is one more finding.
    """
    graphs: Sequence[TracedGraph] = ()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # sums in one order, and timings that do not wait for other programs
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            values, graphs = experiment.measure()
    except Exception as error:
        values = dict.fromkeys(experiment.expected, error_text(error))
    finally:
        torch.set_num_threads(threads)
    pairs = {
        name: (experiment.expected.get(name, MISSING), _without_tensors(values.get(name, MISSING)))
        for name in experiment.expected | values
    }
    compared = [graph for graph in graphs if graph.leaves_agree is not None]
    for graph in compared:
        name = "finite differences" + (f", {graph.caption}" if len(compared) > 1 else "")
        pairs[name] = ("differ" if graph.differs else "agree", "agree" if graph.leaves_agree else "differ")
    findings = [ComparedValue(name, *pair, ok=agrees(*pair)) for name, pair in pairs.items()]
    return Finished(experiment, number, findings, graphs)


def _without_tensors(value: Any) -> Any:
    """The value with a list in place of each tensor."""
    if isinstance(value, Tensor):
        return value.detach().tolist()
    return type(value)(map(_without_tensors, value)) if isinstance(value, (list, tuple)) else value
