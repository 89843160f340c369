"""The report as one HTML file that needs nothing else."""

import html
import re
from pathlib import Path
from string import Template

from qat.experiment.results import Result
from qat.report.blocks import Block, Drawing, Heading, Rows, Text
from qat.report.content import content, title
from qat.report.drawing import svg
from qat.report.health import BAD
from qat.report.palette import COLOURS, Look, looks


def html_page(results: list[Result]) -> str:
    """The whole page; the same results give the same bytes."""
    folder = Path(__file__).parent
    style = Template((folder / "page.css").read_text(encoding="utf-8")).substitute(
        light=_variables(0), dark=_variables(1)
    )
    look = looks(results)
    return Template((folder / "page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title(results)),
        style=style,
        body="\n".join(_block(block, look) for block in content(results)),
    )


def inline(text: str) -> str:
    """Text with names in backticks as HTML."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def _variables(theme: int) -> str:
    return " ".join(f"--{name}: {colours[theme]};" for name, colours in COLOURS.items())


def _block(block: Block, look: dict[str, Look]) -> str:
    if isinstance(block, Heading):
        return f"<h2>{inline(block.text)}</h2>"
    if isinstance(block, Text):
        return f'<p class="{block.kind}">{inline(block.text)}</p>'
    if isinstance(block, Drawing):
        # Two drawings, of which the style sheet shows the one that fits: scaled text could not be read.
        variants = "\n".join(
            f'<div class="{shape}" role="img" aria-label="{html.escape(block.alt)}">'
            f"{svg(block.draw(shape == 'narrow'), f'{block.name}-{shape}')}</div>"
            for shape in ("wide", "narrow")
        )
        return f"<figure>\n{variants}\n</figure>"
    return _table(block, look)


def _table(table: Rows, look: dict[str, Look]) -> str:
    head = "".join(f'<th scope="col">{_cell(text, look)}</th>' for text in table.header)
    lines = []
    for first, *others in table.rows:
        cells = "".join(_number(text, table, look) for text in others)
        lines.append(f'<tr><th scope="row">{_cell(first, look)}</th>{cells}</tr>')
    caption, label = inline(table.caption), table.caption.replace("`", "")
    kind = "text" if table.text else "numbers"
    # The box scrolls, the page does not; with a tabindex the keyboard can scroll it too.
    box = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(label)}">'
        f'<table class="{kind}"><thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )
    if table.folded:
        return f"<details><summary>{caption} ({len(table.rows)} rows)</summary>{box}</details>"
    return f'<p class="note">{caption}</p>\n{box}'


def _number(text: str, table: Rows, look: dict[str, Look]) -> str:
    kind = (
        ' class="zero"' if text == "0" and not table.text else ' class="bad"' if text.startswith(BAD) else ""
    )
    return f"<td{kind}>{_cell(text, look)}</td>"


def _cell(text: str, look: dict[str, Look]) -> str:
    name = re.match(r"`([^`]*)`", text)
    cell = re.sub(r"(?<=[\w*])([._])(?=[\w*])", r"\1<wbr>", inline(text)) if name else inline(text)
    if name and name[1] in look:
        swatch = f'<span class="swatch" style="background: var(--{look[name[1]].colour})"></span>'
        return f'<span class="setup">{swatch}{cell}</span>'
    return cell
