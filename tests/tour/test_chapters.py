"""Every experiment of the tour measures what is expected."""

import inspect
import math
import warnings
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
import torch

from qat.tour import CHAPTERS, chapters
from qat.tour.expectation import agrees
from qat.tour.experiment import Experiment, Finished, Measured, run_experiment

EXPERIMENTS = [subject for chapter in CHAPTERS for subject in chapter.experiments]
COUNT = 37
NOT_ON_THE_GRAPH = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"


@cache
def result_of(title: str) -> Finished:
    (subject,) = (subject for subject in EXPERIMENTS if subject.title == title)
    return run_experiment(subject)


@pytest.mark.parametrize("subject", EXPERIMENTS, ids=lambda subject: subject.title)
def test_measured_is_expected(subject: Experiment) -> None:
    result = result_of(subject.title)
    assert [finding for finding in result.findings if not finding.ok] == []
    assert result.ok
    assert subject.expected.keys() <= {finding.name for finding in result.findings}
    assert result.graphs, "every experiment draws its graph"


def test_all_experiments_are_there_and_titles_differ() -> None:
    assert len({subject.title for subject in EXPERIMENTS}) == len(EXPERIMENTS) == COUNT


def test_every_function_of_a_chapter_is_an_experiment() -> None:
    modules = [
        import_module(f"{chapters.__name__}.{module.name}") for module in iter_modules(chapters.__path__)
    ]
    functions = {
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and function.__annotations__["return"] == Measured
        and name[0] != "_"
    }
    assert functions == {subject.measure for subject in EXPERIMENTS}


# Important expected values a second time, so that a change of one in the code is noticed.
VALUES: list[tuple[str, str, Any]] = [
    ("The true gradient of rounding is zero", "gradient", [0, 0, 0]),
    ("The straight-through estimator lets the gradient pass", "forward", [0, 1, 1]),
    ("The straight-through estimator lets the gradient pass", "gradient", [1, 1, 1]),
    ("NumPy breaks the graph", "backward", NOT_ON_THE_GRAPH),
    ("NumPy breaks the graph", "requires_grad", False),
    ("NumPy breaks the graph", "grad_fn", None),
    ("numpy_function repairs the graph", "gradient", [0.5, 0.25, 1 / 6]),
    ("The smallest Function: Square", "gradient", [2, 4, 6]),
    ("The smallest Function: Square", "node", "SquareBackward"),
    ("Square()(x): a misleading error", "error", {"contains": "with non-static forward method"}),
    ("One gradient too few", "error", {"contains": "incorrect number of gradients (expected 2, got 1)"}),
    ("None is the gradient of an argument that has none", "gradient", [3, 3]),
    ("needs_input_grad says which gradients are needed", "needs_input_grad", "(True, False, False)"),
    ("needs_input_grad says which gradients are needed", "forward", [-1, 0.5, 1]),
    ("needs_input_grad says which gradients are needed", "gradient", [0, 1, 0]),
    ("A tensor on ctx: a wrong gradient and no error", "gradient", [20, 40, 60]),
    ("A tensor on ctx: a wrong gradient and no error", "error", "no error"),
    (
        "save_for_backward: the same change is an error",
        "error",
        {"contains": "an inplace operation"},
    ),
    ("save_for_backward: the same change is an error", "error", {"contains": "expected version 0 instead"}),
    ("Eight tanh keep eight tensors", "kept for the backward", "8.0 MB"),
    ("Eight tanh keep eight tensors", "runs of the block", 1),
    ("With recomputation they keep only their input", "kept for the backward", "1.0 MB"),
    ("With recomputation they keep only their input", "runs of the block", 2),
    ("With recomputation they keep only their input", "largest difference", 0),
    ("torch.utils.checkpoint does the same", "kept for the backward", "1.0 MB"),
    ("torch.utils.checkpoint does the same", "runs of the block", 2),
    ("torch.utils.checkpoint does the same", "largest difference", 0),
    ("Grad mode is off in forward, and in backward too", "outside", True),
    ("Grad mode is off in forward, and in backward too", "in forward", False),
    ("Grad mode is off in forward, and in backward too", "in backward", False),
    ("Recomputation without enable_grad", "error", NOT_ON_THE_GRAPH),
    ("gradcheck catches the wrong Square", "numerical / analytical", [2, 2]),
    ("gradcheck in float32 rejects a right Square", "float64", True),
    ("gradcheck in float32 rejects a right Square", "float32", {"contains": "GradcheckError"}),
    ("Square has a second derivative", "first", [6]),
    ("Square has a second derivative", "second", [2]),
    ("once_differentiable gives it up", "second", NOT_ON_THE_GRAPH),
    ("In a sum, once_differentiable loses terms without an error", "right", [126]),
    ("In a sum, once_differentiable loses terms without an error", "once_differentiable", [18]),
    ("In use: a Hessian-vector product", "H v", [12, -48]),
    ("In use: a gradient penalty", "right", [24]),
    ("In use: a gradient penalty", "once_differentiable", [12]),
    ("A backward computes a vector-Jacobian product", "backward(v)", [2, 40, 600]),
    (
        "A graph serves one backward",
        "second backward",
        {"contains": "the graph a second time"},
    ),
    ("An in-place forward must call mark_dirty", "gradient, unmarked", [1, 1, 1]),
    ("An in-place forward must call mark_dirty", "gradient, mark_dirty", [2, 2, 2]),
    ("The gradients of the Huber loss", "forward", [2.5, 0.5, 0.125, 0, 0.125, 0.5, 2.5]),
    ("The gradients of the Huber loss", "gradient", [-1, -1, -0.5, 0, 0.5, 1, 1]),
    ("log-sum-exp at 1000", "naive", math.inf),
    ("log-sum-exp at 1000", "stable", 1000.6931471805599),
    ("Gradient clipping", "by value, 1", [1, -1]),
    ("Gradient clipping", "by norm, 1", [0.6, -0.8]),
    ("The gradients of weighted losses add up", "gradient", 4.3),
    ("A stopped path passes no gradient", "gradient", 4.0),
    ("sigmoid(x) * w + b is not faster as a Function", "speed-up over plain autograd", {"at most": 1.1}),
    *(
        ("One error message, four causes", cause, NOT_ON_THE_GRAPH)
        for cause in ("left for NumPy", "no enable_grad in backward", "once_differentiable, twice")
    ),
]


@pytest.mark.parametrize(("title", "name", "expected"), VALUES)
def test_important_values(title: str, name: str, expected: Any) -> None:
    (finding,) = (finding for finding in result_of(title).findings if finding.name == name)
    assert agrees(expected, finding.measured), finding


def test_finite_differences_are_compared() -> None:
    names = {
        subject.title: [
            (finding.expected, finding.measured)
            for finding in result_of(subject.title).findings
            if finding.name.startswith("finite differences")
        ]
        for subject in EXPERIMENTS
    }
    assert names["The straight-through estimator lets the gradient pass"] == [("differ", "differ")]
    assert names["The smallest Function: Square"] == [("agree", "agree")]
    assert sum(map(bool, names.values())) >= 25


def test_the_graph_is_the_real_one() -> None:
    (graph,) = result_of("The straight-through estimator lets the gradient pass").graphs
    assert [(node.name, node.kind) for node in graph.nodes] == [
        ("x", "input"),
        ("_StraightThroughBackward", "custom"),
        ("SumBackward0", "operation"),
        ("out", "output"),
    ]
    assert [(arrow.value, arrow.gradient) for arrow in graph.arrows] == [
        ("x = [0.2, 0.7, 1.4]", "[1, 1, 1]"),
        ("y = [0, 1, 1]", "[1, 1, 1]"),
        ("2", "1"),
    ]
    assert (graph.nodes[0].differences, graph.nodes[0].agrees) == ("[0, 0, 0]", False)


def test_the_node_that_raises_is_marked() -> None:
    (graph,) = result_of("One gradient too few").graphs
    assert [node.name for node in graph.nodes if node.raises] == ["TimesConstantTooFewBackward"]


def test_equal_operations_in_a_row_are_one_box() -> None:
    (graph,) = result_of("Eight tanh keep eight tensors").graphs
    assert [(node.name, node.count) for node in graph.nodes][1] == ("TanhBackward0", 8)


def test_the_tour_itself_leaves_random_numbers_and_filters_alone() -> None:
    before, filters = torch.get_rng_state(), list(warnings.filters)
    for subject in EXPERIMENTS[:8]:
        run_experiment(subject)
    assert torch.equal(torch.get_rng_state(), before)
    assert warnings.filters == filters
