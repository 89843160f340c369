"""The report as Markdown with PNG files beside it."""

import re

from qat.experiment.results import Result
from qat.report.blocks import Block, Drawing, Heading, Rows, Text
from qat.report.content import content, title

FIGURES = "report_figures"  # the folder of the PNG files, next to the page


def markdown_page(results: list[Result]) -> str:
    """The whole page; it refers to `report_figures/<name>.png`."""
    parts = [f"# {_escaped(title(results))}", *(_block(block) for block in content(results))]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"## {_escaped(block.text)}"
    if isinstance(block, Text):
        return f"**{_escaped(block.text)}**" if block.kind in ("headline", "alarm") else _escaped(block.text)
    if isinstance(block, Drawing):
        return f"![{_escaped(block.alt).replace(']', '')}]({FIGURES}/{block.name}.png)"
    return _table(block)


def _table(table: Rows) -> str:
    rule = "---" if table.text else "---:"
    lines = [_row(table.header), "|".join(["", "---", *[rule] * (len(table.header) - 1), ""])]
    return f"{_escaped(table.caption)}\n\n" + "\n".join(lines + [_row(row) for row in table.rows])


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    # Inside backticks everything is literal but the bar, which ends a table's cell even there.
    parts = re.split(r"(`[^`]*`)", text.replace("\n", " "))
    plain = [
        part if number % 2 else re.sub(r"([\\*_<\[\]#])", r"\\\1", part) for number, part in enumerate(parts)
    ]
    return "".join(plain).replace("|", r"\|")
