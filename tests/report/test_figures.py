"""The figures hold what the results hold."""

import math
import re

import matplotlib as mpl
import pytest

from qat.report.curves_figure import curves_alt, curves_figure
from qat.report.drawing import png, svg
from qat.report.layers_figure import layers_alt, layers_figure
from qat.report.palette import COLOURS, PAPER, looks

FIGURES = [curves_figure, layers_figure]


def dots(ax, colour):
    """How many filled and hollow dots there are in `colour`, and what is written in it."""
    found = {True: 0, False: 0}
    for line in ax.lines:
        if line.get_marker() not in ("None", "") and line.get_color() == colour:
            found[line.get_markerfacecolor() != "none"] += len(line.get_xdata())
    return found[True], found[False], [text.get_text() for text in ax.texts if text.get_color() == colour]


def test_curves_show_the_means(results):
    axes = curves_figure(results).axes
    assert len(axes) == 4
    line = axes[0].lines[1]
    expected = [
        100 * math.fsum(run["epochs"][epoch]["val_accuracy"] for run in results[3:6]) / 3
        for epoch in range(8)
    ]
    assert list(line.get_xdata()) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(line.get_ydata()) == pytest.approx(expected, rel=1e-12)


def test_equal_lines_look_different(results):
    ste, checkpointed = (curves_figure(results).axes[2].lines[n] for n in (1, 3))
    assert list(ste.get_ydata()) == list(checkpointed.get_ydata())
    assert ste.get_linewidth() > 2 * checkpointed.get_linewidth()
    assert (ste.get_linestyle(), checkpointed.get_linestyle()) == ("-", "--")
    assert ste.get_marker() != checkpointed.get_marker()
    assert ste.get_color() != checkpointed.get_color()


def test_zeros_stand_apart(results):
    look = looks(results)
    for ax, hollow in zip(layers_figure(results).axes, (1, 0), strict=True):
        assert dots(ax, look["zero"].light) == (1, hollow, ["0"] * 13)  # fc.bias is the one that learns
        assert dots(ax, look["ste"].light) == (14, 14 * hollow, [])
        assert ax.get_xticklabels()[0].get_text() == "0"
        start, end = ax.get_xlim()
        assert start < ax.get_xticks()[0] < min(x for line in ax.lines for x in line.get_xdata()) < end


def test_nan_has_its_own_column(results):
    labels = [[text.get_text() for text in ax.get_xticklabels()] for ax in layers_figure(results).axes]
    assert "NaN" not in labels[0] + labels[1]
    for run in results[:3]:
        run["displacement"]["fc.bias"] = math.nan
    labels = [[text.get_text() for text in ax.get_xticklabels()] for ax in layers_figure(results).axes]
    assert "NaN" not in labels[0]
    assert labels[1][-1] == "NaN"


@pytest.mark.parametrize("narrow", [False, True])
def test_a_long_network_has_room_for_each_row(results_of, long_names, narrow):
    assert len(long_names) == 74
    figure = layers_figure(results_of(seeds=1, names=long_names), narrow)
    names = {text.get_text() for text in figure.axes[0].texts} - {"0"}
    assert names == set(long_names)
    assert figure.get_figheight() * 72 / len(long_names) >= 24  # points


@pytest.mark.parametrize("draw", FIGURES)
@pytest.mark.parametrize("narrow", [False, True])
def test_svg_needs_nothing_and_follows_the_theme(results, draw, narrow):
    text = svg(draw(results, narrow), "name")
    assert "http" not in text
    assert not set(re.findall("#[0-9a-f]{6}", text)) - {"#000000"}
    assert "DejaVu" not in text
    ids, used = set(re.findall(' id="([^"]*)"', text)), set(re.findall(r'(?:href="#|url\(#)([^")]*)', text))
    assert ids == used
    assert all(name.startswith("name-") for name in ids)


@pytest.mark.parametrize("draw", FIGURES)
def test_nothing_but_nan_is_drawn_without_a_warning(result_of, draw):
    result = result_of("ste", epochs=1)
    result["epochs"][0] |= {"train_loss": math.nan, "val_loss": math.nan, "val_accuracy": math.nan}
    result["gradient_norm"] = {"fc.bias": (math.nan, math.nan)}
    result["displacement"] = {"fc.bias": math.nan}
    assert png(draw([result])).startswith(b"\x89PNG")


@pytest.mark.parametrize("draw", FIGURES)
def test_no_parameters_and_odd_names(result_of, draw):
    result = result_of("ste", names=()) | {"setup": "$a_<b>&$"}
    assert "$a_&lt;b&gt;&amp;$" in svg(draw([result]), "name")


def test_drawing_leaves_matplotlib_as_it_was(results):
    before = dict(mpl.rcParams)
    svg(curves_figure(results), "name")
    assert dict(mpl.rcParams) == before


def test_alternative_texts_name_the_setups(results):
    for text in (curves_alt(results), layers_alt(results)):
        assert "zero, ste, float and checkpointed" in text


def contrast(one, other):
    """After WCAG 2.1, relative luminance and contrast ratio."""

    def luminance(colour):
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_from_the_paper():
    grounds = {"grid", "band", "zone", "paper", "shade"}
    assert COLOURS["paper"][0] == PAPER
    for name in set(COLOURS) - grounds:
        for theme in (0, 1):
            least = 4.5 if name in ("ink", "muted") else 2.8
            assert contrast(COLOURS[name][theme], COLOURS["paper"][theme]) >= least, name
    assert len({colour for pair in COLOURS.values() for colour in pair}) == 2 * len(COLOURS)


def test_each_setup_has_its_own_look(result_of):
    results = [
        result_of(name) for name in ("zero", "ste", "float", "checkpointed", "ewgs", "soft", "stochastic")
    ]
    look = looks(results)
    assert len({look[run["setup"]].colour for run in results}) == 7
    assert looks(results[:1])["zero"] == look["zero"]
