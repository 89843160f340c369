"""What the study leaves in its folder: `memory.json` and the figures."""

from dataclasses import asdict
from pathlib import Path

from qat.measure.memory.budget_figure import budget_figure
from qat.measure.memory.depth_figure import depth_figure
from qat.measure.memory.drawing import save
from qat.measure.memory.modes_figure import modes_figure
from qat.measure.memory.study import Study
from qat.training.result import versions
from qat.whole_file import write_json

SCHEMA = 1


def write_report(study: Study, compiled: bool, out: Path) -> list[Path]:
    """Write the files into `out`, and take away those of an earlier study that this one has not.

    Args:
        study: what was measured.
        compiled: whether the steps were timed with compiled kernels.
        out: the folder.

    Returns:
        What was written.
    """
    out.mkdir(parents=True, exist_ok=True)
    figures = {
        "modes.png": modes_figure(study.rows),
        "depth.png": depth_figure(study.depth) if study.depth else None,
        "budget.png": budget_figure(study.budget) if study.budget else None,
    }
    written = [out / "memory.json"]
    write_json(written[0], {"schema": SCHEMA, "versions": versions(), "compiled": compiled, **asdict(study)})
    for name, figure in figures.items():
        if figure is None:
            (out / name).unlink(missing_ok=True)
        else:
            save(figure, out / name)
            written.append(out / name)
    return written
