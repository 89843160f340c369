"""Tables for a page; those for a terminal are read in `test_tables.py`."""

from qat.measure.benchmark.tables import Figures
from qat.measure.benchmark.writing import as_markdown


def test_markdown() -> None:
    figures = Figures("Title", ["", "path", "ms"], [["x * 2", "", "1.00"]], ["[b]: absent"])
    assert as_markdown(figures).splitlines() == [
        "Title:",
        "",
        "|  | path | ms |",
        "| --- | --- | ---: |",
        r"| x \* 2 |  | 1.00 |",
        "",
        "[b]: absent",
    ]
