"""Every experiment of the tour measures what is expected; a planted wrong value is a cross."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from qat.tour import cli as tour
from qat.tour.expected import AtMost, Says, agrees
from qat.tour.experiment import Chapter, Experiment, Outcome, Result, heard, raised, run_experiment

EXPERIMENTS = [subject for chapter in tour.CHAPTERS for subject in chapter.experiments]
LEAST = 31
NO_GRAD_FN = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"


@cache
def result_of(title: str) -> Result:
    (subject,) = (subject for subject in EXPERIMENTS if subject.title == title)
    return run_experiment(subject)


@pytest.mark.parametrize("subject", EXPERIMENTS, ids=lambda subject: subject.title)
def test_measured_is_expected(subject: Experiment) -> None:
    result = result_of(subject.title)
    assert [figure for figure in result.figures if not figure.ok] == []
    assert result.ok
    assert subject.expected.keys() <= {figure.name for figure in result.figures}
    assert result.graphs, "every experiment draws its graph"


def test_there_are_enough_and_titles_differ() -> None:
    assert len({subject.title for subject in EXPERIMENTS}) == len(EXPERIMENTS) >= LEAST


# The figures of the documents once more, so that nobody bends an expected value to fit a measured one.
FIGURES: list[tuple[str, str, Any]] = [
    ("The true gradient of rounding is zero", "gradient", [0, 0, 0]),
    ("The straight-through estimator lets the gradient pass", "forward", [0, 1, 1]),
    ("The straight-through estimator lets the gradient pass", "gradient", [1, 1, 1]),
    ("The graph breaks at NumPy", "backward", NO_GRAD_FN),
    ("The graph breaks at NumPy", "requires_grad", False),
    ("The graph breaks at NumPy", "grad_fn", None),
    ("numpy_function mends it", "gradient", [0.5, 0.25, 1 / 6]),
    ("The smallest Function: Square", "gradient", [2, 4, 6]),
    ("The smallest Function: Square", "node", "SquareBackward"),
    ("Square()(x): the error that points the wrong way", "error", Says("with non-static forward method")),
    ("One gradient too few", "error", Says("incorrect number of gradients (expected 2, got 1)")),
    ("None stands for an argument without a gradient", "gradient", [3, 3]),
    ("needs_input_grad tells which gradients are wanted", "needs_input_grad", (True, False, False)),
    ("needs_input_grad tells which gradients are wanted", "forward", [-1, 0.5, 1]),
    ("needs_input_grad tells which gradients are wanted", "gradient", [0, 1, 0]),
    ("A tensor on ctx: wrong without a word", "gradient", [20, 40, 60]),
    ("A tensor on ctx: wrong without a word", "error", ""),
    ("save_for_backward: the same change is an error", "error", Says("modified by an inplace operation")),
    ("save_for_backward: the same change is an error", "error", Says("expected version 0 instead")),
    ("Eight tanh keep eight tensors", "kept for the backward", "8.0 MB"),
    ("Eight tanh keep eight tensors", "runs of the block", 1),
    ("Recomputed, they keep their entry alone", "kept for the backward", "1.0 MB"),
    ("Recomputed, they keep their entry alone", "runs of the block", 2),
    ("Recomputed, they keep their entry alone", "largest difference", 0),
    ("torch.utils.checkpoint does the same", "kept for the backward", "1.0 MB"),
    ("torch.utils.checkpoint does the same", "runs of the block", 2),
    ("torch.utils.checkpoint does the same", "largest difference", 0),
    ("Grad mode is off in forward, and in backward too", "outside", True),
    ("Grad mode is off in forward, and in backward too", "in forward", False),
    ("Grad mode is off in forward, and in backward too", "in backward", False),
    ("Recomputing without enable_grad", "error", NO_GRAD_FN),
    ("gradcheck catches the wrong Square", "numerical / analytical", [2, 2]),
    ("gradcheck in float32 fails a right Square", "float64", True),
    ("gradcheck in float32 fails a right Square", "float32", Says("GradcheckError")),
    ("Square has a second derivative", "first", [6]),
    ("Square has a second derivative", "second", [2]),
    ("once_differentiable gives it up", "second", NO_GRAD_FN),
    ("... and in a sum it drops its terms in silence", "right", [126]),
    ("... and in a sum it drops its terms in silence", "once_differentiable", [18]),
    ("At work: a Hessian-vector product", "H v", [12, -48]),
    ("At work: a gradient penalty", "right", [24]),
    ("At work: a gradient penalty", "once_differentiable", [12]),
    ("A backward is a vector-Jacobian product", "backward(v)", [2, 40, 600]),
    ("A graph serves one backward", "second backward", Says("backward through the graph a second time")),
    ("An in-place forward says so with mark_dirty", "gradient, unmarked", [1, 1, 1]),
    ("An in-place forward says so with mark_dirty", "gradient, mark_dirty", [2, 2, 2]),
    ("The gradients of the Huber loss", "loss", [2.5, 0.5, 0.125, 0, 0.125, 0.5, 2.5]),
    ("The gradients of the Huber loss", "gradient", [-1, -1, -0.5, 0, 0.5, 1, 1]),
    ("log-sum-exp at 1000", "naive", math.inf),
    ("log-sum-exp at 1000", "stable", 1000.6931471805599),
    ("Gradient clipping", "by value, 1", [1, -1]),
    ("Gradient clipping", "by norm, 1", [0.6, -0.8]),
    ("Weighted losses share a tensor by their weights", "gradient", 4.3),
    ("... and a stopped path does not learn", "gradient", 4.0),
    ("sigmoid(x) * w + b as a Function is not faster", "speed-up over plain autograd", AtMost(1.1)),
    *(
        ("One message, three causes, and the everyday one", cause, NO_GRAD_FN)
        for cause in ("left for NumPy", "no enable_grad in backward", "once_differentiable, twice")
    ),
]


@pytest.mark.parametrize(("title", "name", "expected"), FIGURES)
def test_the_documents_figures(title: str, name: str, expected: Any) -> None:
    (figure,) = (figure for figure in result_of(title).figures if figure.name == name)
    assert agrees(expected, figure.measured), figure


def test_finite_differences_are_compared() -> None:
    names = {
        subject.title: [
            (figure.expected, figure.measured)
            for figure in result_of(subject.title).figures
            if figure.name.startswith("finite differences")
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
        ("_RoundSTEBackward", "custom"),
        ("SumBackward0", "operation"),
        ("out", "output"),
    ]
    assert [(arrow.value, arrow.gradient) for arrow in graph.arrows] == [
        ("x = [0.2, 0.7, 1.4]", "[1, 1, 1]"),
        ("y = [0, 1, 1]", "[1, 1, 1]"),
        ("2", "1"),
    ]
    assert (graph.nodes[0].differences, graph.nodes[0].agree) == ("[0, 0, 0]", False)


def test_the_node_that_raises_is_marked() -> None:
    (graph,) = result_of("One gradient too few").graphs
    assert [node.name for node in graph.nodes if node.stopped] == ["ScaleShortBackward"]


def test_equal_operations_in_a_row_are_one_box() -> None:
    (graph,) = result_of("Eight tanh keep eight tensors").graphs
    assert [(node.name, node.count) for node in graph.nodes][1] == ("TanhBackward0", 8)


@pytest.mark.parametrize(
    ("expected", "measured", "same"),
    [
        ([0.0, 1.0], [0.0, 1.0], True),
        ([0.0, 1.0], [1e-12, 1.0], False),
        ([1 / 6], [0.1666666716337204], True),
        ([1.0], [1.0001], False),
        ([1.0], [1.0, 2.0], False),
        ((True, False), (True, False), True),
        ((True, False), [True, False], False),
        (1, True, False),
        (True, 1, False),
        (False, None, False),
        (math.inf, math.inf, True),
        (1.0, math.nan, False),
        (1.0, "1.0", False),
        ("a", "ab", False),
        (Says("b"), "abc", True),
        (Says("d"), "abc", False),
        (Says("b"), None, False),
        (AtMost(1.1), 1.1, True),
        (AtMost(1.1), 1.2, False),
        (AtMost(1.1), math.nan, False),
    ],
)
def test_agrees(expected: Any, measured: Any, same: bool) -> None:
    assert agrees(expected, measured) is same


def planted(measure: Callable[[], Outcome]) -> Experiment:
    return Experiment("Planted", "To be seen.", {"one": 1.0, "two": 2.0}, measure)


def test_a_wrong_value_is_a_cross() -> None:
    result = run_experiment(planted(lambda: Outcome({"one": torch.tensor(1.0), "two": 3.0})))
    assert [figure.ok for figure in result.figures] == [True, False]
    assert not result.ok


def test_a_missing_or_unexpected_figure_is_a_cross() -> None:
    missing = run_experiment(planted(lambda: Outcome({"one": 1.0})))
    extra = run_experiment(planted(lambda: Outcome({"one": 1.0, "two": 2.0, "three": None})))
    assert [figure.ok for figure in missing.figures] == [True, False]
    assert [figure.ok for figure in extra.figures] == [True, True, False]


def test_an_experiment_that_breaks_is_a_cross() -> None:
    def breaks() -> Outcome:
        raise KeyError("gone")

    result = run_experiment(planted(breaks))
    assert [figure.measured for figure in result.figures] == ["KeyError: 'gone'"] * 2
    assert not result.ok


def test_a_gradient_that_is_wrong_by_finite_differences_is_a_cross() -> None:
    (subject,) = (subject for subject in EXPERIMENTS if subject.title == "The smallest Function: Square")
    outcome = subject.measure()
    wrong = dataclasses.replace(outcome.graphs[0], leaves_agree=False)
    result = run_experiment(
        dataclasses.replace(subject, measure=lambda: dataclasses.replace(outcome, graphs=(wrong,)))
    )
    assert [figure.name for figure in result.figures if not figure.ok] == ["finite differences"]


def test_global_state_is_as_before() -> None:
    def disturbs() -> Outcome:
        torch.manual_seed(7)
        torch.set_num_threads(1)
        return Outcome({"one": 1.0, "two": 2.0 if torch.is_grad_enabled() else 0.0})

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        before = torch.get_rng_state()
        with torch.no_grad():
            assert run_experiment(planted(disturbs)).ok
            assert not torch.is_grad_enabled()
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_tour_itself_leaves_random_numbers_and_filters_alone() -> None:
    before, filters = torch.get_rng_state(), list(warnings.filters)
    for subject in EXPERIMENTS[:8]:
        run_experiment(subject)
    assert torch.equal(torch.get_rng_state(), before)
    assert warnings.filters == filters


def test_heard_lets_other_warnings_pass() -> None:
    said: list[str] = []

    def warn_twice() -> None:
        with heard(UserWarning, "this") as found:
            warnings.warn("this one", UserWarning, stacklevel=1)
            warnings.warn("other one", UserWarning, stacklevel=1)
        said.extend(found)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.warns(UserWarning, match="other"):
            warn_twice()
    assert said == ["UserWarning: this one"]


def test_raised_without_an_error() -> None:
    assert raised(lambda: None) == "no error"


def test_run_tour_shows_chapters_and_results() -> None:
    chapter = Chapter("One", (planted(lambda: Outcome({"one": 1.0, "two": 2.0})),))
    shown: list[tuple[str, bool]] = []
    ((ran, results),) = tour.run_tour([chapter], lambda c, r: shown.append((c.title, r is not None)))
    assert ran is chapter
    assert [result.ok for result in results] == [True]
    assert shown == [("One", False), ("One", True)]
