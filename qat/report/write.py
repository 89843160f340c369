"""The report of a comparison, written next to the runs it is made from."""

import os
import tempfile
from pathlib import Path

from qat.experiment.results import load_results
from qat.report.blocks import Drawing
from qat.report.content import content
from qat.report.drawing import png
from qat.report.markdown import FIGURES, markdown_page
from qat.report.page import html_page


def write_report(out: Path) -> Path:
    """Write `report.html`, `report.md` and `report_figures/*.png` into `out` from its `*/result.json` alone.

    The HTML file is whole: it shows the same without a network and in any other place. Each file replaces its
    predecessor at once, never half-written.

    Args:
        out: the folder of a comparison, with a folder for each run.

    Returns:
        The path of `report.html`.

    Raises:
        ValueError: there is no result, or a broken one, which the message names.
    """
    out = Path(out)
    results = load_results(out)
    page = html_page(results)
    (out / FIGURES).mkdir(exist_ok=True)
    for block in content(results):
        if isinstance(block, Drawing):
            _replace(out / FIGURES / f"{block.name}.png", png(block.draw(False)))
    _replace(out / "report.md", markdown_page(results).encode())
    _replace(out / "report.html", page.encode())
    return out / "report.html"


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).chmod(0o644)  # mkstemp's own mode would hide the report from everybody else
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
