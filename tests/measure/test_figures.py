"""The figures show what the study found."""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from qat.measure.depth import CURVES
from qat.measure.figures import LINES, budget_figure, depth_figure, modes_figure, save_figures
from qat.measure.memory_study import MemoryStudy


def widths(figure: Figure, panel: int) -> list[float]:
    return [bar.get_width() for bar in figure.axes[panel].patches]


def test_every_mode_has_a_style() -> None:
    assert LINES.keys() == CURVES.keys()


def test_modes(study: MemoryStudy) -> None:
    figure = modes_figure(study.rows)
    assert widths(figure, 0) == [600, 500, 400, 300, 200, 100]
    assert widths(figure, 1) == [610, 510, 410, 310, 210, 110]
    assert widths(figure, 2) == [620, 520, 420, 320, 220, 120]
    assert widths(figure, 3) == pytest.approx([1, 2, 3, 4, 5, 6])
    assert figure.axes[0].yaxis_inverted()
    assert [text.get_text() for text in figure.axes[0].texts][1] == "500   0.83"


def test_depth(study: MemoryStudy) -> None:
    assert study.depth is not None
    kept, topped = depth_figure(study.depth).axes
    sizes = {line.get_label(): list(line.get_ydata()) for line in kept.lines}
    assert sizes["float"] == [1, 2]
    assert sizes["float, sqrt(n) segments"] == [0.5, 0.7]
    assert list(topped.lines[-1].get_ydata()) == pytest.approx([0.6, 1.0])
    assert [text.get_text() for text in kept.get_xticklabels()] == ["8", "16"]


def test_budget(study: MemoryStudy) -> None:
    assert study.budget is not None
    study.budget.largest["float"] = None
    figure = budget_figure(study.budget)
    assert widths(figure, 0) == [0, 200, 300, 400, 500, 600]
    assert [text.get_text() for text in figure.axes[0].texts][:2] == ["any", "200"]
    assert "2000 MB" in figure.axes[0].get_title()


def test_files_are_written_and_those_of_an_earlier_study_removed(study: MemoryStudy, tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    files = save_figures(study, tmp_path)
    assert [file.name for file in files] == ["modes.png", "depth.png", "budget.png"]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    assert dict(mpl.rcParams) == before
    assert save_figures(replace(study, depth=None, budget=None), tmp_path) == files[:1]
    assert list(tmp_path.iterdir()) == files[:1]
