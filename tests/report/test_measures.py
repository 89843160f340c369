"""What is computed from the runs of a setup."""

import math

import pytest

from qat.report.measures import curve, epochs_to, seconds_per_epoch, target_accuracy


def with_accuracies(result, *values):
    result["epochs"] = [result["epochs"][0] | {"val_accuracy": value} for value in values]
    return result


@pytest.mark.parametrize(
    ("best", "target"), [(0.95, 0.9), (0.9, 0.9), (0.899, 0.85), (0.7, 0.7), (0.04, 0.0), (math.nan, 0.0)]
)
def test_target(result_of, best, target):
    assert target_accuracy([with_accuracies(result_of("ste"), 0.0, best)]) == pytest.approx(target, abs=1e-12)


def test_target_is_reached_by_the_run_that_set_it(result_of):
    for hundredths in range(5, 90):
        run = with_accuracies(result_of("ste"), hundredths / 100)
        assert epochs_to([run], target_accuracy([run])) == [1]


def test_epochs_count_from_one(result_of):
    run = with_accuracies(result_of("ste"), 0.5, 0.9, 0.8)
    assert [epochs_to([run], target) for target in (0.5, 0.9, 0.91)] == [[1], [2], [None]]


def test_a_shorter_run_is_absent_later(result_of):
    short, long = with_accuracies(result_of("ste"), 0.5), with_accuracies(result_of("ste", 1), 0.7, 0.8)
    assert [(s.low, s.high, s.count) for s in curve([short, long], "val_accuracy")] == [
        (0.5, 0.7, 2),
        (0.8, 0.8, 1),
    ]


def test_seconds_ignore_a_slow_first_epoch(result_of):
    run = result_of("ste")
    for epoch, seconds in zip(run["epochs"], [90, 2, 2, 2, 2, 2, 2, math.nan], strict=True):
        epoch["seconds"] = seconds
    assert seconds_per_epoch([run]) == 2
