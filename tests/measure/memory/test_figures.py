"""The figures hold what the study holds."""

import pytest
from matplotlib.figure import Figure

from qat.measure.memory.budget_figure import budget_figure
from qat.measure.memory.depth import SQRT
from qat.measure.memory.depth_figure import depth_figure
from qat.measure.memory.drawing import LOOKS
from qat.measure.memory.modes import MODES
from qat.measure.memory.modes_figure import modes_figure
from qat.measure.memory.study import Study


def widths(figure: Figure, panel: int) -> list[float]:
    return [bar.get_width() for bar in figure.axes[panel].patches]


def test_every_mode_has_a_look() -> None:
    assert LOOKS.keys() == {*MODES, SQRT}


def test_modes(study: Study) -> None:
    figure = modes_figure(study.rows)
    assert widths(figure, 0) == [600, 500, 400, 300, 200, 100]
    assert widths(figure, 1) == [610, 510, 410, 310, 210, 110]
    assert widths(figure, 2) == [620, 520, 420, 320, 220, 120]
    assert widths(figure, 3) == pytest.approx([1, 2, 3, 4, 5, 6])
    assert figure.axes[0].yaxis_inverted()
    assert [text.get_text() for text in figure.axes[0].texts][1] == "500   0.83"


def test_depth(study: Study) -> None:
    assert study.depth is not None
    kept, topped = depth_figure(study.depth).axes
    sizes = {line.get_label(): list(line.get_ydata()) for line in kept.lines}
    assert sizes["float"] == [1, 2]
    assert sizes[SQRT] == [0.5, 0.7]
    assert list(topped.lines[-1].get_ydata()) == pytest.approx([0.6, 1.0])
    assert [text.get_text() for text in kept.get_xticklabels()] == ["8", "16"]


def test_budget(study: Study) -> None:
    assert study.budget is not None
    study.budget.largest["float"] = None
    figure = budget_figure(study.budget)
    assert widths(figure, 0) == [0, 200, 300, 400, 500, 600]
    assert [text.get_text() for text in figure.axes[0].texts][:2] == ["any", "200"]
    assert "2000 MB" in figure.axes[0].get_title(loc="left")
