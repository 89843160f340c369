"""An experiment compares what it measures with what is expected; a planted wrong value is a cross."""

from collections.abc import Callable
from dataclasses import replace

import torch

from qat.tour.experiment import Chapter, Experiment, Measured, run_experiment, run_tour
from qat.tour.trace import differentiate, leaf


def planted(measure: Callable[[], Measured]) -> Experiment:
    return Experiment(measure, "Planted", "To be seen.", {"one": 1.0, "two": 2.0})


def test_a_wrong_value_is_a_cross() -> None:
    result = run_experiment(planted(lambda: ({"one": torch.tensor(1.0), "two": 3.0}, [])))
    assert [finding.ok for finding in result.findings] == [True, False]
    assert not result.ok


def test_a_missing_or_unexpected_figure_is_a_cross() -> None:
    missing = run_experiment(planted(lambda: ({"one": 1.0}, [])))
    extra = run_experiment(planted(lambda: ({"one": 1.0, "two": 2.0, "three": None}, [])))
    assert [finding.ok for finding in missing.findings] == [True, False]
    assert [finding.ok for finding in extra.findings] == [True, True, False]


def test_an_experiment_that_breaks_is_a_cross() -> None:
    def breaks() -> Measured:
        raise KeyError("gone")

    result = run_experiment(planted(breaks))
    assert [finding.measured for finding in result.findings] == ["KeyError: 'gone'"] * 2
    assert not result.ok


def test_a_gradient_that_is_wrong_by_finite_differences_is_a_cross() -> None:
    values = {"one": 1.0, "two": 2.0}
    _, (graph,) = differentiate(torch.square, x=leaf(1.0))
    assert run_experiment(planted(lambda: (values, [graph]))).ok
    wrong = replace(graph, leaves_agree=False)
    result = run_experiment(planted(lambda: (values, [wrong])))
    assert [finding.name for finding in result.findings if not finding.ok] == ["finite differences"]


def test_global_state_is_as_before() -> None:
    def disturbs() -> Measured:
        torch.manual_seed(7)
        torch.set_num_threads(1)
        return {"one": 1.0, "two": 2.0 if torch.is_grad_enabled() else 0.0}, []

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


def test_run_tour_numbers_the_experiments_and_yields_each_as_soon_as_it_has_finished() -> None:
    started = []

    def measure() -> Measured:
        started.append(len(started))
        return {"one": 1.0, "two": 2.0}, []

    one, two = Chapter("One", [planted(measure)]), Chapter("Two", [planted(measure)] * 2)
    tour = run_tour([one, two])
    chapter, first = next(tour)
    assert (chapter, first.number, first.ok, started) == (one, 1, True, [0])
    assert [(chapter, finished.number) for chapter, finished in tour] == [(two, 2), (two, 3)]
