"""The curves show what the epochs hold."""

import math

import pytest

from qat.report.curves import curves


def test_lines_are_the_means(results, grouped):
    axes = curves(grouped(results)).figure.axes
    line = axes[0].lines[1]
    means = [
        100 * math.fsum(run["epochs"][epoch]["val_accuracy"] for run in results[3:6]) / 3
        for epoch in range(8)
    ]
    assert len(axes) == 4
    assert list(line.get_xdata()) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(line.get_ydata()) == pytest.approx(means, rel=1e-12)
    assert axes[2].get_yscale() == "log"


def test_the_close_up_ends_at_the_best(results, grouped):
    best = 100 * max(epoch["val_accuracy"] for run in results for epoch in run["epochs"])
    assert curves(grouped(results)).figure.axes[1].get_ylim() == pytest.approx((best - 5, best + 0.4))


def test_equal_lines_look_different(results, grouped):
    ste, checkpointed = (curves(grouped(results)).figure.axes[2].lines[n] for n in (1, 3))
    assert list(ste.get_ydata()) == list(checkpointed.get_ydata())
    assert ste.get_linewidth() > 2 * checkpointed.get_linewidth()
    assert (ste.get_linestyle(), checkpointed.get_linestyle()) == ("-", "--")
    assert ste.get_marker() != checkpointed.get_marker()
    assert ste.get_color() != checkpointed.get_color()


def test_many_setups_are_heat_maps(results_of, grouped):
    picture = curves(grouped(results_of([f"setup{n}" for n in range(9)], seeds=1)))
    assert [len(ax.patches) for ax in picture.figure.axes] == [9 * 8] * 3
    assert picture.figure.axes[0].get_yticklabels()[0].get_text() == "setup0"
    assert len(picture.figure.axes[0].texts) == 9 * 8
    assert "setup0, setup1" in picture.alt


def test_of_many_epochs_the_numbers_are_left_out(results_of, grouped):
    figure = curves(grouped(results_of([f"setup{n}" for n in range(9)], seeds=1, epochs=30))).figure
    assert {text.get_text() for text in figure.axes[0].texts} == {""}
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert [label for label in labels if label] == ["10", "20", "30"]
