"""The figures show what the results hold, in colours that stand out from light and dark paper."""

import math
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

import qat.report
from qat.report.figures import curves, parameters, sweep

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
RATE = "model.learning_rate"
FOLDER = Path(qat.report.__file__).parent
PAPER, DARK_PAPER = "#fefefe", "#14181d"
# CSS Filter Effects 1: hue-rotate(180deg), after invert(1).
HUE = np.array([[-0.574, 1.430, 0.144], [0.426, 0.430, 0.144], [0.426, 1.430, -0.856]])


@pytest.fixture(autouse=True)
def style():
    """The report's style, as on the page."""
    with mpl.rc_context(fname=FOLDER / "report.mplstyle"):
        yield


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


def cells(ax):
    """The texts of a heat map by row and column."""
    return {tuple(int(n) for n in text.get_position()[::-1]): text.get_text() for text in ax.texts}


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_curves_are_the_means(results, grouped):
    axes = curves(grouped(results)).axes
    means = [math.fsum(run["epochs"][n]["val_accuracy"] for run in results[3:6]) / 3 for n in range(8)]
    assert [ax.get_title(loc="left") for ax in axes] == [
        "Validation accuracy",
        "The same, the best and 5 points below",
        "Validation loss",
        "Training loss",
    ]
    for ax in axes[:2]:
        assert list(lines(ax)["ste"].get_xdata()) == [1, 2, 3, 4, 5, 6, 7, 8]
        assert list(lines(ax)["ste"].get_ydata()) == pytest.approx(means, rel=1e-12)
    assert [ax.get_yscale() for ax in axes] == ["linear", "linear", "log", "log"]
    (legend,) = axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["zero", "ste", "float", "checkpointed"]


def test_the_close_up_ends_at_the_best(results, grouped):
    best = max(epoch["val_accuracy"] for run in results for epoch in run["epochs"])
    assert curves(grouped(results)).axes[1].get_ylim() == pytest.approx((best - 0.05, best + 0.004))


def test_equal_lines_look_different(results, grouped):
    found = lines(curves(grouped(results)).axes[2])
    ste, checkpointed = found["ste"], found["checkpointed"]
    assert list(ste.get_ydata()) == list(checkpointed.get_ydata())
    assert ste.get_linewidth() > 2 * checkpointed.get_linewidth()
    assert (ste.get_linestyle(), checkpointed.get_linestyle()) == ("-", ":")
    assert ste.get_marker() != checkpointed.get_marker()
    assert ste.get_color() != checkpointed.get_color()


def test_a_shorter_run_ends_its_line(result_of, grouped):
    ax = curves(grouped([result_of("ste", epochs=2), result_of("float", epochs=3)])).axes[0]
    assert [math.isnan(y) for y in lines(ax)["ste"].get_ydata()] == [False, False, True]


def test_curves_of_many_setups_are_heat_maps(results_of, grouped):
    names = [f"setup{n}" for n in range(9)]
    axes = curves(grouped(results_of(names, seeds=1))).axes
    assert [len(ax.texts) for ax in axes] == [9 * 8] * 3
    for ax in axes:
        assert labels(ax.yaxis) == names
        assert ax.get_ylim() == (9, 0)
    axes = curves(grouped(results_of(names, seeds=1, epochs=16))).axes
    assert [len(ax.texts) for ax in axes] == [0] * 3  # the numbers would not fit


def test_lines_over_bits(result_of, grouped):
    runs = []
    accuracies = {"ste": {8: 0.97, 4: 0.96, 1: 0.5}, "ewgs": {8: 0.9, 1: 0.6}, "float": {None: 0.97}}
    for setup, found in accuracies.items():
        for bits, accuracy in found.items():
            runs.append(result_of(setup, sweep={BITS: bits}))
            runs[-1]["test"]["accuracy"] = accuracy
    for ax in sweep(grouped(runs)).axes:
        assert labels(ax.xaxis) == ["8", "4", "1"]
        assert ax.get_xscale() == "log"
        assert ax.xaxis_inverted()
        assert list(lines(ax)["ste"].get_xdata()) == [8, 4, 1]
        assert list(lines(ax)["ste"].get_ydata()) == [0.97, 0.96, 0.5]
        assert list(lines(ax)["ewgs"].get_ydata()) == pytest.approx([0.9, math.nan, 0.6], nan_ok=True)
        assert list(lines(ax)["float"].get_ydata()) == [0.97] * 3  # not swept: level


@pytest.mark.parametrize(
    ("values", "scale"), [([1e-4, 1e-2], "log"), ([0.01, 0.03], "linear"), ([0, 1e-4, 1e-2], "symlog")]
)
def test_a_wide_span_of_numbers_has_a_logarithmic_axis(results_of, grouped, values, scale):
    ax = sweep(grouped(results_of(("ste",), seeds=1, sweep={"model.weight_decay": values}))).axes[0]
    assert ax.get_xscale() == scale
    assert not ax.xaxis_inverted()


def test_names_have_places(results_of, grouped):
    ax = sweep(grouped(results_of(("ste",), seeds=1, sweep={"model.optimizer": ["sgd", "adamw"]}))).axes[0]
    assert labels(ax.xaxis) == ["sgd", "adamw"]
    assert list(lines(ax)["ste"].get_xdata()) == [0, 1]


def test_a_sweep_of_many_setups_or_several_options_is_a_heat_map(results_of, grouped):
    names = [*(f"setup{n}" for n in range(8)), "float"]
    (ax,) = sweep(grouped(results_of(names, seeds=1, sweep={BITS: [8, 2]}))).axes
    assert labels(ax.yaxis) == names
    assert (cells(ax)[8, 0], cells(ax)[8, 1]) == ("98.3", "98.3")
    results = results_of(("ste",), seeds=1, sweep={BITS: [8, 7, 4], RATE: [0.01, 0.1]})
    results[0]["test"]["accuracy"] = None
    (ax,) = sweep(grouped(results[:-1])).axes
    assert labels(ax.yaxis) == ["ste at learning_rate 0.01", "ste at learning_rate 0.1"]
    assert labels(ax.xaxis) == ["8", "7", "4"]
    assert cells(ax)[0, 0] == "NaN"
    assert cells(ax).keys() == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)}


def test_exact_zeros_stand_apart(results, grouped):
    axes = parameters(grouped(results)).axes
    assert [ax.get_title(loc="left") for ax in axes] == [
        "Gradient, first epoch",
        "Gradient, last epoch",
        "Distance moved",
    ]
    for ax, of_bias in zip(axes, ("0.0569", "0.00889", "2.13"), strict=True):
        assert [cells(ax)[row, 0] for row in range(14)] == ["0"] * 13 + [of_bias]
        assert "0" not in [cells(ax)[row, column] for row in range(14) for column in (1, 2, 3)]
        mesh = ax.collections[0]
        colours = mesh.to_rgba(mesh.get_array())
        assert {tuple(colour) for colour in colours[:13, 0]} == {mpl.colors.to_rgba("#b8892f", 0.3)}
        assert np.all(colours[:, 1:, 3] == 1)


def test_darker_is_more(results, grouped):
    mesh = parameters(grouped(results)).axes[2].collections[0]
    shades = mesh.to_rgba(mesh.get_array())[:, 1, :3].sum(axis=1)
    moved = list(results[3]["displacement"].values())
    assert np.argmin(shades) == np.argmax(moved)


def test_nan_is_written_and_what_is_absent_is_not(results, grouped):
    for run in results[:3]:
        run["displacement"]["fc.bias"] = math.nan
    for run in results[3:6]:
        del run["displacement"]["fc.bias"]
    texts = cells(parameters(grouped(results)).axes[2])
    assert texts[13, 0] == "NaN"
    assert (13, 1) not in texts


def test_of_many_setups_zeros_are_written_alone(results_of, grouped):
    axes = parameters(grouped(results_of(["zero", *(f"setup{n}" for n in range(9))], seeds=1))).axes
    assert set(cells(axes[0]).values()) == {"0"}


def test_long_names_of_setups_are_turned(results, grouped):
    ax = parameters(grouped(results)).axes[0]
    assert labels(ax.xaxis) == ["zero", "ste", "float", "checkpointed"]
    assert all(tick.label2.get_rotation() == 55 for tick in ax.xaxis.get_major_ticks())


def test_a_long_network_has_room_for_each_row(results_of, grouped, long_names):
    figure = parameters(grouped(results_of(seeds=1, names=long_names)))
    assert labels(figure.axes[0].yaxis) == list(long_names)
    assert figure.get_figheight() * 72 / len(long_names) >= 16  # points


def test_nothing_but_nan_is_drawn_without_a_warning(result_of, grouped):
    run = result_of("ste", sweep={RATE: 0.1}, epochs=1, names=())
    run["epochs"][0] |= {"train_loss": math.nan, "val_loss": math.nan, "val_accuracy": math.nan}
    run["test"]["accuracy"] = math.nan
    for draw in (curves, parameters, sweep):
        draw(grouped([run])).draw_without_rendering()


def test_a_name_is_not_a_formula(result_of, grouped):
    figure = curves(grouped([result_of("ste") | {"setup": "$a_<b>&$"}]))
    figure.draw_without_rendering()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["$a_<b>&$"]
    assert not figure.legends[0].get_texts()[0].get_parse_math()


def rgb(colour):
    return np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])


def contrast(one, other):
    """After WCAG 2.1, relative luminance and contrast ratio."""

    def luminance(parts):
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_from_both_papers():
    lines_ = [mpl.colors.to_hex(colour) for colour in mpl.rcParams["axes.prop_cycle"].by_key()["color"]]
    texts = [
        mpl.colors.to_hex(mpl.rcParams[name]) for name in ("text.color", "axes.labelcolor", "xtick.color")
    ]
    assert len(set(lines_)) == 10
    for colour, least in [*((colour, 3.0) for colour in lines_), *((colour, 4.5) for colour in texts)]:
        assert contrast(rgb(colour), rgb(PAPER)) >= least, colour
        on_dark = np.clip(HUE @ (1 - rgb(colour)), 0, 1)
        assert contrast(on_dark, rgb(DARK_PAPER)) >= least, colour


def test_the_style_sheet_has_these_papers_and_inverts_figures():
    css = (FOLDER / "report.css").read_text(encoding="utf-8")
    assert {PAPER, DARK_PAPER} == set(re.findall("--paper: (#[0-9a-f]{6})", css))
    assert mpl.colors.to_hex(mpl.rcParams["savefig.facecolor"]) == PAPER
    assert "img, .setup i { filter: invert(1) hue-rotate(180deg); }" in css
