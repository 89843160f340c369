"""The report: sections of tables and pictures, each with the sentence below it, written as two pages."""

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from qat.experiment.results import load_results
from qat.report import readings
from qat.report.curves import curves
from qat.report.drawing import Picture
from qat.report.groups import Groups, group
from qat.report.pairs import pairs
from qat.report.parameters import parameters
from qat.report.sweep import sweep
from qat.report.tables import (
    BAD,
    Table,
    costs_table,
    health_reading,
    health_table,
    pairs_table,
    parameters_table,
    result_table,
    settings_tables,
)
from qat.whole_file import write_whole

FIGURES = "report_figures"  # the folder of the PNG files, beside the pages


@dataclass(frozen=True)
class Section:
    """A title, an introduction, pictures and tables in order, and what they say."""

    title: str
    content: list[Picture | Table]
    readings: list[str]
    introduction: str = ""


def write_report(out: Path) -> Path:
    """Write `report.html`, `report.md` and `report_figures/*.png` into `out` from its results alone.

    The HTML file needs no other file. Each file replaces the earlier one as a whole.

    Args:
        out: the folder of a comparison, with a folder for each run.

    Returns:
        The path of `report.html`.

    Raises:
        ValueError: there is no result, or a broken one, which the message names.
        OSError: a file cannot be written.
    """
    groups = group(load_results(out))
    content = {
        "title": _title(groups),
        "headline": readings.headline(groups),
        "sections": sections(groups),
        "styles": groups.styles,
        "figures": FIGURES,
        "bad": BAD,
    }
    pages = {name: _environment().get_template(name).render(content) for name in ("report.md", "report.html")}
    (Path(out) / FIGURES).mkdir(exist_ok=True)
    for picture in (item for section in content["sections"] for item in section.content):
        if isinstance(picture, Picture):
            write_whole(Path(out) / FIGURES / f"{picture.name}.png", picture.file("png"))
    for name, page in pages.items():
        write_whole(Path(out) / name, page.encode())
    return Path(out) / "report.html"


def sections(groups: Groups) -> list[Section]:
    """All of the report below its headline; of several points of a sweep one is shown in detail."""
    result = Section("Result and cost", [result_table(groups)], [readings.result_reading(groups)])
    one, point = groups.detail()
    at = f" at {groups.point_text(point)}" if point else ""
    training = Section(f"Training{at}", [curves(one)], [readings.curves_reading(one)])
    found = [training, result]
    if point:
        over = "bits" if groups.axis.is_bits else f"`{groups.axis.name}`"
        found = [
            Section(f"Accuracy over {over}", [sweep(groups)], [readings.sweep_reading(groups)]),
            result,
            training,
        ]
    zeros = "A rounding whose gradient is zero stops all that flows back through it: nothing before it can learn."
    learning = [parameters(one), parameters_table(one)]
    found.append(Section(f"What learns{at}", learning, [readings.parameters_reading(one)], zeros))
    if costs := costs_table(one):
        found.append(Section(f"What the layers cost{at}", [costs], [readings.costs_reading(one)]))
    if health := health_table(one):
        found.append(Section(f"Health of the quantizers{at}", [health], [health_reading(health)]))
    if equal := pairs(groups):
        texts = [readings.pair_reading(pair) for pair in equal]
        found.append(Section("Setups that must be equal", [pairs_table(equal)], texts))
    text = readings.settings_reading(groups)
    found.append(Section("Settings, seeds and versions", list(settings_tables(groups)), [text]))
    return found


def _title(groups: Groups) -> str:
    settings = groups.every[0].runs[0].settings
    names = [(settings.get(key) or {}).get("name") for key in ("model", "data")]
    return "Comparison" + (": " + " on ".join(map(str, names)) if all(names) else "")


def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {"code": _code, "markdown": _markdown, "data_uri": _data_uri}
    found.tests["picture"] = lambda item: isinstance(item, Picture)
    return found


def _code(text: str) -> Markup:
    """Text with names in backticks as HTML; a long name may break after a dot or an underscore."""
    marked = re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"(?<=[a-z0-9])([._])(?=[a-z0-9])(?=[^<>]*</code>)", r"\1<wbr>", marked))


def _markdown(text: str) -> str:
    # Inside backticks everything is literal but the bar, which ends a table's cell even there.
    parts = re.split(r"(`[^`]*`)", text.replace("\n", " "))
    plain = [part if n % 2 else re.sub(r"([\\*_<\[\]#])", r"\\\1", part) for n, part in enumerate(parts)]
    return "".join(plain).replace("|", r"\|")


def _data_uri(picture: Picture) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(picture.file("svg")).decode()
