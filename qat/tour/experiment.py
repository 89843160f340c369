"""An experiment of the tour: what is expected, fixed in the code, against what is measured now."""

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qat.tour.expected import agrees
from qat.tour.graph import Graph

MISSING = "(missing)"  # on one side alone: never equal to a value of the other


@dataclass(frozen=True)
class Outcome:
    """What an experiment measured, by the names of its expected figures, and the graphs it measured on."""

    measured: dict[str, Any]
    graphs: tuple[Graph, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    Args:
        title: what it shows.
        why: one line of explanation.
        expected: by the name of the figure; numbers, text, (nested) lists and tuples, `AtMost`, `Says`.
        measure: runs it; its figures have the names of `expected`.
    """

    title: str
    why: str
    expected: dict[str, Any]
    measure: Callable[[], Outcome]


@dataclass(frozen=True)
class Chapter:
    """Experiments on one subject."""

    title: str
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class Figure:
    """One expected and one measured value."""

    name: str
    expected: Any
    measured: Any

    @property
    def ok(self) -> bool:
        return agrees(self.expected, self.measured)


@dataclass(frozen=True)
class Result:
    """An experiment that has run."""

    experiment: Experiment
    figures: tuple[Figure, ...]
    graphs: tuple[Graph, ...]

    @property
    def ok(self) -> bool:
        return all(figure.ok for figure in self.figures)


def experiment(
    title: str, *, why: str, expected: dict[str, Any]
) -> Callable[[Callable[[], Outcome]], Experiment]:
    """Make a function that measures into an `Experiment`."""

    def make(measure: Callable[[], Outcome]) -> Experiment:
        return Experiment(title, why, expected, measure)

    return make


def run_experiment(subject: Experiment) -> Result:
    """Run one experiment; random numbers, grad mode and threads are afterwards as before.

    An experiment that breaks is a cross, with the error as its measured value: the others still run. Where a
    graph was checked against finite differences, that is one more figure.
    """
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)  # sums in one order, and timings that do not wait for other programs
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            outcome = subject.measure()
        measured, graphs = outcome.measured, outcome.graphs
    except Exception as error:
        measured, graphs = dict.fromkeys(subject.expected, _message(error)), ()
    finally:
        torch.set_num_threads(threads)
    names = dict.fromkeys((*subject.expected, *measured))
    figures = [
        Figure(name, subject.expected.get(name, MISSING), _plain(measured.get(name, MISSING)))
        for name in names
    ]
    for graph in graphs:
        if graph.leaves_agree is not None:
            several = sum(other.leaves_agree is not None for other in graphs) > 1
            name = f"finite differences, {graph.caption}" if several else "finite differences"
            figures.append(
                Figure(
                    name, "differ" if graph.differs else "agree", "agree" if graph.leaves_agree else "differ"
                )
            )
    return Result(subject, tuple(figures), graphs)


def raised(action: Callable[[], object]) -> str:
    """The error of an action as one line, `Kind: message`, or "no error"."""
    try:
        action()
    except (RuntimeError, ValueError, TypeError) as error:
        return _message(error)
    return "no error"


@contextmanager
def heard(category: type[Warning], message: str) -> Iterator[list[str]]:
    """Collect the warnings of one kind that start with a message; all others pass on."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message=message, category=category)
        yield said
    for warning in caught:
        if issubclass(warning.category, category) and re.match(message, str(warning.message)):
            said.append(f"{category.__name__}: {_clean(str(warning.message))}")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@functools.singledispatch
def _plain(value: Any) -> Any:
    """The value without tensors; a snapshot, since a later step may work in place."""
    return value


@_plain.register
def _(value: Tensor) -> Any:
    return value.detach().tolist()


@_plain.register(list)
@_plain.register(tuple)
def _(value: Any) -> Any:
    return type(value)(map(_plain, value))


def _message(error: Exception) -> str:
    name = type(error).__name__
    return f"{name}: {_clean(str(error))}"


def _clean(text: str) -> str:
    """On one line, without the links that torch puts into its messages."""
    return " ".join(re.sub(r"\(Example: \S+\)|https?://\S+", "", text).split())
