"""The writer of tables."""

import json
from pathlib import Path

from rich.console import Console

from qat.measure.tables import ResultTable, as_markdown, digits, for_terminal, write_results

TABLE = ResultTable("Title", ["", "path", "ms"], [["x * 2", "", "1.00"]], ["[b]: absent"])
MARKDOWN = [
    "Title:",
    "",
    "|  | path | ms |",
    "| --- | --- | ---: |",
    r"| x \* 2 |  | 1.00 |",
    "",
    "[b]: absent",
]


def test_markdown() -> None:
    assert as_markdown(TABLE).splitlines() == MARKDOWN


def test_titles_wrap_and_values_do_not() -> None:
    table = ResultTable("Title", ["name", "a long title"], [["x" * 30, "1"], ["y", "1 (22)"]])
    console = Console(width=80)
    with console.capture() as capture:
        console.print(for_terminal(table))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert lines[1:4] == ["Title", f"{'a long':>38}", f"{'name':32} title"]
    assert lines[5:] == [f"{'x' * 30}       1", f"{'y':32}1 (22)"]


def test_json_and_page_in_a_folder(tmp_path: Path) -> None:
    machine = {"processor": "P", "cores": 2, "threads": 1, "device": "cpu", "load": None, "versions": {}}
    files = write_results(tmp_path / "new" / "folder", "ops", machine, {"results": [float("nan")]}, [TABLE])
    assert [file.name for file in files] == ["ops.json", "ops.md"]
    found = json.loads(files[0].read_text(encoding="utf-8"))
    assert found == {"schema": 2, "machine": machine, "results": [None]}
    assert files[1].read_text(encoding="utf-8").splitlines() == [*MARKDOWN, "", "P, 2 cores, 1 threads; "]


def test_digits() -> None:
    values = (0.012, 1.234, 12.34, 123.4, 12345)
    assert [digits(value) for value in values] == ["0.0120", "1.23", "12.3", "123", "12345"]
