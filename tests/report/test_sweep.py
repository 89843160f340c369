"""The figure of a sweep shows the accuracy at each value."""

import math

import pytest

from qat.report.sweep import sweep

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
RATE = "model.learning_rate"


@pytest.fixture
def ewgs_without_4_bits(result_of):
    runs = []
    accuracies = {"ste": {8: 0.97, 4: 0.96, 1: 0.5}, "ewgs": {8: 0.9, 1: 0.6}, "float": {None: 0.97}}
    for setup, found in accuracies.items():
        for bits, accuracy in found.items():
            runs.append(result_of(setup, sweep={BITS: bits}))
            runs[-1]["test"]["accuracy"] = accuracy
    return runs


def test_lines_over_bits(ewgs_without_4_bits, grouped):
    groups = grouped(ewgs_without_4_bits)
    picture = sweep(groups)
    assert picture.name == "bits"
    assert picture.alt == "Test accuracy over bits for ste, ewgs and float"
    for ax in picture.figure.axes:
        assert [text.get_text() for text in ax.get_xticklabels()] == ["8", "4", "1"]
        assert ax.get_xscale() == "log"
        assert ax.xaxis_inverted()
        lines = {line.get_color(): line for line in ax.lines}
        assert list(lines[groups.styles["ste"].colour].get_xdata()) == [8, 4, 1]
        assert list(lines[groups.styles["ste"].colour].get_ydata()) == pytest.approx([97, 96, 50])
        ys = lines[groups.styles["ewgs"].colour].get_ydata()
        assert (ys[0], math.isnan(ys[1]), ys[2]) == (pytest.approx(90), True, pytest.approx(60))
        level = lines[groups.styles["float"].colour]
        assert (list(level.get_xdata()), list(level.get_ydata())) == ([0, 1], pytest.approx([97, 97]))


@pytest.mark.parametrize(
    ("values", "scale"), [([1e-4, 1e-2], "log"), ([0.01, 0.03], "linear"), ([0, 1e-4, 1e-2], "symlog")]
)
def test_a_wide_span_of_numbers_has_a_logarithmic_axis(results_of, grouped, values, scale):
    results = results_of(("ste",), seeds=1, sweep={"model.weight_decay": values})
    picture = sweep(grouped(results))
    assert picture.name == "sweep"
    assert picture.figure.axes[0].get_xscale() == scale
    assert not picture.figure.axes[0].xaxis_inverted()
    assert picture.file("png").startswith(b"\x89PNG")


def test_names_have_places_and_no_line(results_of, grouped):
    results = results_of(("ste",), seeds=1, sweep={"model.optimizer": ["sgd", "adamw"]})
    ax = sweep(grouped(results)).figure.axes[0]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["sgd", "adamw"]
    assert ax.lines[0].get_linestyle() == "None"


def test_another_option_gets_a_row_for_each_value(results_of, grouped):
    results = results_of(seeds=1, sweep={BITS: [8, 4, 2], RATE: [0.001, 0.01]})
    axes = sweep(grouped(results)).figure.axes
    assert [ax.get_title(loc="left") for ax in axes[::2]] == [
        "Test accuracy, %, learning_rate 0.001",
        "Test accuracy, %, learning_rate 0.01",
    ]


def test_a_diverged_run_is_crossed(results_of, grouped):
    results = results_of(("ste",), seeds=1, sweep={RATE: [0.001, 0.01, 0.1]})
    results[2]["test"] = {"accuracy": None, "loss": None}
    crosses = [line for line in sweep(grouped(results)).figure.axes[0].lines if line.get_marker() == "x"]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in crosses] == [([0.1], [0.0])]


def test_many_setups_or_many_values_of_others_are_a_heat_map(results_of, grouped):
    names = [*(f"setup{n}" for n in range(8)), "float"]
    (ax,) = sweep(grouped(results_of(names, seeds=1, sweep={BITS: [8, 2]}))).figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == names
    assert [text.get_text() for text in ax.texts][-2:] == ["98.3", "98.3"]  # not swept: equal at both
    results = results_of(("ste",), seeds=1, sweep={BITS: [8, 7, 6, 5, 4, 2], "model.seed": [1, 2, 3, 4, 5]})
    results[0]["test"]["accuracy"] = None
    (ax,) = sweep(grouped(results[:-1])).figure.axes
    assert ax.get_yticklabels()[0].get_text() == "ste, seed 1"
    assert len(ax.texts) == 30
    texts = [text.get_text() for text in ax.texts]
    assert (texts[0], texts[-1], len(ax.patches)) == ("NaN", "", 28)


def test_nothing_but_nan(result_of, grouped):
    results = [result_of("ste", sweep={BITS: bits}) for bits in (8, 4)]
    for run in results:
        run["test"]["accuracy"] = math.nan
    assert sweep(grouped(results)).file("png").startswith(b"\x89PNG")
