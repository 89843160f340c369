"""The heat maps of the parameters show zeros apart."""

import math

from qat.report.parameters import parameters
from qat.report.styles import ZONE


def cells(ax):
    """The texts of the cells, by row and column."""
    found = {}
    for text in ax.texts:
        x, y = text.get_position()
        found[int(y), int(x)] = text.get_text()
    return found


def test_exact_zeros_stand_apart(results, grouped):
    figure = parameters(grouped(results)).figure
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        "Gradient, first epoch",
        "Gradient, last epoch",
        "Distance moved",
    ]
    for ax, of_bias in zip(figure.axes, ("0.0569", "0.00889", "2.13"), strict=True):
        texts = cells(ax)
        assert [texts[row, 0] for row in range(14)] == ["0"] * 13 + [of_bias]
        assert "0" not in [texts[row, column] for row in range(14) for column in (1, 2, 3)]
        zones = [patch for patch in ax.patches if patch.get_facecolor()[3] < 1]
        assert len(zones) == 13
        assert {patch.get_facecolor()[:3] for patch in zones} == {rgb(ZONE)}


def rgb(colour):
    return tuple(int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))


def test_darker_is_more(results, grouped):
    ax = parameters(grouped(results)).figure.axes[2]
    patches = {(int(p.get_y()), int(p.get_x())): sum(p.get_facecolor()[:3]) for p in ax.patches}
    moved = {row: results[3]["displacement"][name] for row, name in enumerate(results[3]["displacement"])}
    darkest = min(moved, key=lambda row: patches[row, 1])
    assert moved[darkest] == max(moved.values())


def test_nan_is_written_and_what_is_absent_is_not(results, grouped):
    for run in results[:3]:
        run["displacement"]["fc.bias"] = math.nan
    for run in results[3:6]:
        del run["displacement"]["fc.bias"]
    texts = cells(parameters(grouped(results)).figure.axes[2])
    assert (texts[13, 0], texts[13, 1]) == ("NaN", "")


def test_of_many_setups_zeros_are_written_alone(results_of, grouped):
    figure = parameters(grouped(results_of(["zero", *(f"setup{n}" for n in range(9))], seeds=1))).figure
    assert {text.get_text() for text in figure.axes[0].texts} == {"0", ""}


def test_long_names_of_setups_are_turned(results, grouped):
    ax = parameters(grouped(results)).figure.axes[0]
    shown = [label for label in ax.get_xticklabels() if label.get_visible() and label.get_text()]
    assert [(label.get_text(), label.get_rotation()) for label in shown] == [
        (name, 55.0) for name in ("zero", "ste", "float", "checkpointed")
    ]
    assert all(tick.label2.get_rotation() == 55 for tick in ax.xaxis.get_major_ticks())


def test_a_long_network_has_room_for_each_row(results_of, grouped, long_names):
    figure = parameters(grouped(results_of(seeds=1, names=long_names))).figure
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == list(long_names)
    assert figure.get_figheight() * 72 / len(long_names) >= 16  # points


def test_no_parameters(result_of, grouped):
    assert parameters(grouped([result_of("ste", names=())])).file("png").startswith(b"\x89PNG")
