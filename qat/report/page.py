"""The report as Markdown with PNG files beside it, and as one HTML file that needs nothing else."""

import base64
import re
from pathlib import Path
from typing import Any

import jinja2
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import escape

from qat.experiment.results import load_results
from qat.report import curves, parameters, readings, sweep, tables
from qat.report.drawing import Picture
from qat.report.groups import Groups, group
from qat.report.pairs import pairs
from qat.report.styles import SetupStyle
from qat.whole_file import write_whole

_FIGURES = "report_figures"
_FOLD = 24  # a table with more rows begins folded: it would push everything below out of sight


def write_report(out: Path) -> Path:
    """Write `report.html`, `report.md` and `report_figures/*.png` into `out` from its results alone.

    Each file replaces the earlier one as a whole.

    Args:
        out: the folder of a comparison, with a folder for each run.

    Returns:
        The path of `report.html`.

    Raises:
        ValueError: there is no result, or a broken one, which the message names.
        OSError: a file cannot be written.
    """
    groups = group(load_results(out))
    pictures: dict[str, Picture] = {}

    def shown(picture: Picture) -> str:
        path = f"{_FIGURES}/{picture.name}.png"
        pictures[path] = picture
        return f"![{_escaped(picture.alt)}]({path})"

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"escaped": _escaped, "shown": shown}
    text = re.sub("\n{3,}", "\n\n", templates.get_template("report.md").render(_content(groups)))
    body = _html(text, pictures, groups.styles)
    page = templates.get_template("report.html").render(title=_title(groups), body=body)
    (Path(out) / _FIGURES).mkdir(exist_ok=True)
    for path, picture in pictures.items():
        write_whole(Path(out) / path, picture.file("png"))
    write_whole(Path(out) / "report.md", text.encode())
    return write_whole(Path(out) / "report.html", page.encode())


def _content(groups: Groups) -> dict[str, Any]:
    """What the template writes: the groups, those that are shown in detail, and what reads them."""
    one, point = groups.detail()
    rooms = {
        "tables": tables,
        "readings": readings,
        "curves": curves,
        "parameters": parameters,
        "sweep": sweep,
    }
    at = f" at {groups.point_text(point)}" if point else ""
    return {"title": _title(groups), "groups": groups, "one": one, "at": at, "pairs": pairs(groups), **rooms}


def _title(groups: Groups) -> str:
    settings = groups.every[0].runs[0].settings
    names = [(settings.get(key) or {}).get("name") for key in ("model", "data")]
    return "Comparison" + (": " + " on ".join(map(str, names)) if all(names) else "")


def _escaped(text: str) -> str:
    """Text in which nothing but a name in backticks has a meaning in Markdown."""
    # Inside backticks everything is literal but the bar, which ends a table's cell even there.
    parts = re.split(r"(`[^`]*`)", " ".join(text.split("\n")))
    plain = [part if n % 2 else re.sub(r"([\\*_<\[\]#&`])", r"\\\1", part) for n, part in enumerate(parts)]
    return "".join(plain).replace("|", r"\|")


def _html(text: str, pictures: dict[str, Picture], styles: dict[str, SetupStyle]) -> str:
    """The Markdown as HTML, with pictures as data, and with what the style sheet needs."""

    def image(_: Any, tokens: list[Token], n: int, *__: Any) -> str:
        picture = pictures[str(tokens[n].attrs["src"])]
        data = base64.b64encode(picture.file("svg")).decode()
        source = f"data:image/svg+xml;base64,{data}"
        return f'<span class="scroll" tabindex="0"><img alt="{escape(picture.alt)}" src="{source}"></span>'

    def code(_: Any, tokens: list[Token], n: int, *__: Any) -> str:
        name = tokens[n].content
        broken = re.sub(r"(?<=\w)([._])(?=\w)", r"\1<wbr>", str(escape(name)))
        if name not in styles:
            return f"<code>{broken}</code>"
        return f'<code class="setup"><i style="background: {styles[name].colour}"></i>{broken}</code>'

    def table(_: Any, tokens: list[Token], n: int, *__: Any) -> str:
        length = next(m for m, token in enumerate(tokens[n:]) if token.type == "table_close")
        rows = sum(token.type == "tr_open" for token in tokens[n : n + length]) - 1
        kind = 'class="long"' if rows > _FOLD else "open"
        return f'<details {kind}><summary>{rows} rows</summary><div class="scroll" tabindex="0"><table>'

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    for name, rule in (("image", image), ("code_inline", code), ("table_open", table)):
        parser.add_render_rule(name, rule)
    parser.add_render_rule("table_close", lambda *_: "</table></div></details>\n")
    tokens = parser.parse(text)
    for n, token in enumerate(tokens):
        if token.type == "td_open" and tokens[n - 1].type == "tr_open":
            token.tag = tokens[n + 2].tag = "th"
            token.attrSet("scope", "row")
        elif token.type == "td_open" and token.attrs:  # aligned to the right: a number
            kind = {"0": "zero", tables.BAD: "bad"}.get(tokens[n + 1].content[:2])
            if kind:
                token.attrSet("class", kind)
    return str(parser.renderer.render(tokens, parser.options, {}))
