"""Pictures as files: complete, equal for equal figures, and silent about what cannot be drawn."""

import math

import matplotlib as mpl
import pytest

from qat.report.curves import curves
from qat.report.parameters import parameters

FIGURES = [curves, parameters]


@pytest.mark.parametrize("draw", FIGURES)
def test_nothing_but_nan_is_drawn_without_a_warning(result_of, grouped, draw):
    result = result_of("ste", epochs=1)
    result["epochs"][0] |= {"train_loss": math.nan, "val_loss": math.nan, "val_accuracy": math.nan}
    result["gradient_norm"] = {"fc.bias": (math.nan, math.nan)}
    result["displacement"] = {"fc.bias": math.nan}
    assert draw(grouped([result])).file("png").startswith(b"\x89PNG")


@pytest.mark.parametrize("draw", FIGURES)
def test_a_name_is_not_a_formula(result_of, grouped, draw):
    picture = draw(grouped([result_of("ste") | {"setup": "$a_<b>&$"}]))
    assert b"<svg" in picture.file("svg")
    texts = [text.get_text() for text in picture.figure.findobj(mpl.text.Text)]
    assert "$a_<b>&$" in texts


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_two_drawings_are_the_same_bytes(results, grouped, kind):
    assert curves(grouped(results)).file(kind) == curves(grouped(results)).file(kind)


def test_drawing_leaves_matplotlib_as_it_was(results, grouped):
    before = dict(mpl.rcParams)
    curves(grouped(results)).file("svg")
    assert dict(mpl.rcParams) == before


def test_a_legend_is_read_row_by_row(results_of, grouped):
    names = ["zero", "ste", "float", "checkpointed", "ewgs", "soft", "learned"]
    (legend,) = curves(grouped(results_of(names, seeds=1))).figure.legends
    mpl.figure.Figure.draw_without_rendering(legend.figure)
    places = {text.get_text(): text.get_window_extent() for text in legend.get_texts()}
    rows = sorted(places, key=lambda name: (-round(places[name].y0), places[name].x0))
    assert rows == names
