"""A table of results: for a terminal, as Markdown, and beside its JSON in a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from qat.measure.machine import in_words
from qat.whole_file import write_json, write_whole

SCHEMA = 2
PATH = "path"  # a column of words
NO = "NO"  # a cell that makes its row red
ABSENT = "-"
WIDTH = 80  # columns of a terminal


@dataclass
class ResultTable:
    """A table in words, with a title above it and remarks below."""

    title: str
    header: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def is_words(self, column: int) -> bool:
        """Whether a column holds words, which are aligned at the left."""
        return column == 0 or self.header[column] == PATH


def for_terminal(results: ResultTable) -> Group:
    """The title, the table, and the remarks; titles of columns wrap, values do not."""
    columns = [[*title.split(), *(row[n] for row in results.rows)] for n, title in enumerate(results.header)]
    widths = [max(map(len, column), default=1) for column in columns]
    gap = 1 if sum(widths) + 2 * len(widths) <= WIDTH else 0
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))
    for column, title in enumerate(results.header):
        table.add_column(title, justify="left" if results.is_words(column) else "right", width=widths[column])
    for row in results.rows:
        table.add_row(*map(Text, row), style="red" if NO in row else None)
    return Group(Text(f"\n{results.title}", style="bold"), table, *map(Text, results.remarks))


def as_markdown(results: ResultTable) -> str:
    """The same for a page; asterisks in a name are escaped."""
    rules = ["---" if results.is_words(column) else "---:" for column in range(len(results.header))]
    lines = [f"| {' | '.join(row)} |".replace("*", r"\*") for row in (results.header, rules, *results.rows)]
    return "\n".join([f"{results.title}:", "", *lines, *(f"\n{remark}" for remark in results.remarks), ""])


def write_results(
    out: Path, name: str, machine: dict[str, Any], content: Mapping[str, Any], tables: Sequence[ResultTable]
) -> list[Path]:
    """Write `<name>.json` and `<name>.md` into a folder, which is made if needed, and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    page = "\n".join([*map(as_markdown, tables), in_words(machine), ""])
    return [
        write_json(out / f"{name}.json", {"schema": SCHEMA, "machine": machine, **content}),
        write_whole(out / f"{name}.md", page),
    ]


def digits(value: float) -> str:
    """Three significant digits: `0.0120`, `1.23`, `12.3`; for a larger number all before the point."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"
