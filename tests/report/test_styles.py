"""Colours stand out from light and dark paper, and each setup has its own look."""

from pathlib import Path

import numpy as np

import qat.report
from qat.report.styles import INK, MUTED, PALETTE, PAPER, styles

DARK_PAPER = "#14181d"
# CSS Filter Effects 1: hue-rotate(180deg), after invert(1).
HUE = np.array([[-0.574, 1.430, 0.144], [0.426, 0.430, 0.144], [0.426, 1.430, -0.856]])


def rgb(colour):
    return np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])


def on_dark(colour):
    return np.clip(HUE @ (1 - rgb(colour)), 0, 1)


def contrast(one, other):
    """After WCAG 2.1, relative luminance and contrast ratio."""

    def luminance(parts):
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_from_both_papers():
    for colour in (*PALETTE, INK, MUTED):
        least = 4.5 if colour in (INK, MUTED) else 3.0
        assert contrast(rgb(colour), rgb(PAPER)) >= least, colour
        assert contrast(on_dark(colour), rgb(DARK_PAPER)) >= least, colour


def test_the_style_sheet_has_these_papers_and_inverts_figures():
    css = (Path(qat.report.__file__).parent / "report.css").read_text(encoding="utf-8")
    assert f"--paper: {PAPER}" in css
    assert f"--paper: {DARK_PAPER}" in css
    assert "img, .setup i { filter: invert(1) hue-rotate(180deg); }" in css


def test_each_setup_has_its_own_colour_by_its_place():
    found = styles("abcdefghij", [])
    assert len({style.colour for style in found.values()}) == 10
    assert styles("abc", ["b"])["c"] == found["c"]


def test_more_setups_than_colours_differ_in_their_dashes_and_markers():
    found = styles([str(n) for n in range(20)], [])
    assert len({(style.colour, style.dashes, style.marker) for style in found.values()}) == 20


def test_a_setup_that_others_must_equal_is_wide_and_solid():
    found = styles(["ste", "checkpointed"], ["ste"])
    assert found["ste"].width > 2 * found["checkpointed"].width
    assert (found["ste"].dashes, bool(found["checkpointed"].dashes)) == ((), True)
