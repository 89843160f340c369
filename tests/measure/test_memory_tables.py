"""The tables show what the study found, in 80 columns."""

import io
import re
from dataclasses import replace

from rich.console import Console

from qat.measure.memory_study import MemoryStudy
from qat.measure.memory_tables import budget_table, depth_table, fitting, megabytes, modes_table, study_tables
from qat.measure.modes import MEMORY_MODES, PACKED_CHECKPOINTED
from qat.measure.tables import ResultTable, for_terminal


def lines(table: ResultTable) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(for_terminal(table))
    return console.file.getvalue().splitlines()


def row(table: ResultTable, name: str) -> list[str]:
    (found,) = [line for line in lines(table) if re.match(rf"{re.escape(name)} +[\d.]", line)]
    return found.strip().removeprefix(name).split()


def test_modes(study: MemoryStudy) -> None:
    study.rows[PACKED_CHECKPOINTED].timing.seconds[:] = 2.5, 3.0, 3.5
    table = modes_table(study.rows)
    assert row(table, PACKED_CHECKPOINTED) == [
        "100",
        "(0.17)",
        "110",
        "(0.18)",
        "120",
        "(0.19)",
        "6.00",
        "±",
        "0.50",
        "yes",
    ]
    assert row(table, "float") == ["600", "(1.00)", "610", "(1.00)", "620", "(1.00)", "1", "-"]


def test_a_difference_is_loud(study: MemoryStudy) -> None:
    study.rows[PACKED_CHECKPOINTED].identical = False
    table = modes_table(study.rows)
    assert row(table, PACKED_CHECKPOINTED)[-1] == "NO"
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    console.print(for_terminal(table))
    (line,) = [line for line in console.file.getvalue().splitlines() if "NO" in line]
    assert "\x1b[31m" in line  # red


def test_depth(study: MemoryStudy) -> None:
    assert study.depth is not None
    table = depth_table(study.depth)
    assert row(table, "float") == ["1.00", "2.00", "-", "0.25"]
    assert row(table, "float, sqrt(n) segments") == ["0.50", "0.70", "0.10", "to", "0.30", "-"]


def test_budget(study: MemoryStudy) -> None:
    assert study.budget is not None
    assert row(budget_table(study.budget), PACKED_CHECKPOINTED) == [
        "120",
        "(128)",
        "240",
        "(256)",
        "600",
        "6.0",
    ]
    none = replace(study.budget, largest=dict.fromkeys(study.budget.largest))
    assert row(budget_table(none), PACKED_CHECKPOINTED)[-2:] == ["any", "-"]


def test_numbers_as_text() -> None:
    assert [megabytes(size) for size in (0, 1.234e6, 12.34e6, 99.94e6, 99.95e6, 2e9)] == [
        *("0.00", "1.23", "12.3", "99.9"),
        *("100", "2000"),
    ]
    assert [fitting(batch) for batch in (None, 0, 1, 2, 12345)] == ["any", "none", "none", "2", "12,345"]


def test_all_tables_fit_a_terminal(study: MemoryStudy) -> None:
    tables = study_tables(study)
    for table in tables:
        assert [line for line in lines(table) if "…" in line or len(line) > 80] == []
        assert all(row(table, name) for name in MEMORY_MODES)
    assert len(tables) == 3
    assert len(study_tables(replace(study, depth=None, budget=None))) == 1
