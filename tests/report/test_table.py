"""The table in the terminal and on the pages."""

import io

import pytest
from rich.console import Console

from qat.report.table import comparison_table, epochs_text, summary


def test_rows(changed):
    header, rows = summary(changed(ste=[0.96, 0.97, 0.98]))
    assert header == ["setup", "test accuracy", "epochs to 90 %", "s / epoch", "saved MB", "MB / float"]
    assert [cell.replace("\u00a0", " ") for cell in rows[1]] == [
        "`ste`",
        "97.0 ± 1.0 %",
        "3",
        "3.47",
        "9.81",
        "0.46",
    ]
    assert [row[2] for row in rows] == ["never", "3", "3", "3"]


def test_no_ratio_without_float(results):
    assert [row[-1] for row in summary(results[:6])[1]] == ["-", "-"]


@pytest.mark.parametrize(
    ("epochs", "text"),
    [
        ([3], "3"),
        ([3, 3], "3"),
        ([4, 2], "2 to 4"),
        ([None, None], "never"),
        ([3, None, 5], "3 to 5 (1 of 3 never)"),
    ],
)
def test_epochs_text(epochs, text):
    assert epochs_text(epochs) == text


def test_a_name_is_not_markup(result_of):
    result = result_of("ste") | {"setup": "[red]x"}
    console = Console(file=io.StringIO(), width=100)
    console.print(comparison_table([result]))
    assert "[red]x" in console.file.getvalue()


def test_values_stay_whole_in_a_narrow_terminal(result_of):
    console = Console(file=io.StringIO(), width=80)
    results = [result_of(name, seed=seed) for name in ("zero", "packed_checkpointed") for seed in (0, 1)]
    console.print(comparison_table(results))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for row in summary(results)[1]:
        assert any(all(cell.strip("`") in line for cell in row) for line in lines)
