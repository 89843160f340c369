"""A table of figures for a terminal, and as Markdown."""

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from qat.measure.benchmark.tables import PATH, Figures


def for_terminal(figures: Figures) -> Group:
    """The title, the table, and the remarks below it."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(figures.header):
        left = _is_words(number, column)
        table.add_column(column, justify="left" if left else "right", no_wrap=left)
    for row in figures.rows:
        table.add_row(*map(Text, row))
    return Group(Text(f"\n{figures.title}", style="bold"), table, *map(Text, figures.remarks))


def as_markdown(figures: Figures) -> str:
    """The same for a page; the stars of a name are no emphasis."""
    rules = ["---" if _is_words(number, column) else "---:" for number, column in enumerate(figures.header)]
    rows = [figures.header, rules, *figures.rows]
    lines = [f"| {' | '.join(row)} |".replace("*", r"\*") for row in rows]
    remarks = [f"\n{remark}" for remark in figures.remarks]
    return "\n".join([f"{figures.title}:", "", *lines, *remarks, ""])


def _is_words(number: int, column: str) -> bool:
    return number == 0 or column == PATH
