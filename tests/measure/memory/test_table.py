"""The tables hold the study, in 80 columns."""

import io
import re
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from qat.measure.memory.modes import BOTH
from qat.measure.memory.study import Study
from qat.measure.memory.table import budget_table, depth_table, fits, megabytes, modes_table


def lines(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    return console.file.getvalue().splitlines()


def row(table: Table, name: str) -> list[str]:
    (found,) = [line for line in lines(table) if re.match(rf" {re.escape(name)} +[\d.]", line)]
    return found.strip().removeprefix(name).split()


def test_modes(study: Study) -> None:
    study.rows[BOTH].steps.seconds[:] = 2.5, 3.0, 3.5
    table = modes_table(study.rows)
    assert row(table, BOTH) == ["100", "(0.17)", "110", "(0.18)", "120", "(0.19)", "6.00", "±", "0.50", "yes"]
    assert row(table, "float") == ["600", "(1.00)", "610", "(1.00)", "620", "(1.00)", "1", "-"]


def test_a_difference_is_loud(study: Study) -> None:
    study.rows[BOTH].steps.identical = False
    table = modes_table(study.rows)
    assert row(table, BOTH)[-1] == "NO"
    assert table.rows[-1].style == "red"


def test_depth(study: Study) -> None:
    assert study.depth is not None
    table = depth_table(study.depth)
    assert row(table, "float") == ["1.00", "2.00", "-", "0.25"]
    assert row(table, "float, sqrt(n) segments") == ["0.50", "0.70", "0.10", "to", "0.30", "-"]


def test_budget(study: Study) -> None:
    assert study.budget is not None
    assert row(budget_table(study.budget), BOTH) == ["120", "(128)", "240", "(256)", "600", "6.0"]
    none = replace(study.budget, largest=dict.fromkeys(study.budget.largest))
    assert row(budget_table(none), BOTH)[-2:] == ["any", "-"]


def test_numbers_as_text() -> None:
    assert [megabytes(size) for size in (0, 1.234e6, 12.34e6, 99.94e6, 99.95e6, 2e9)] == [
        *("0.00", "1.23", "12.3", "99.9"),
        *("100", "2000"),
    ]
    assert [fits(batch) for batch in (None, 0, 1, 2, 12345)] == ["any", "none", "none", "2", "12,345"]
