"""What a person reads, in 80 columns."""

import pytest
from rich.console import Console

from qat.measure import ops
from qat.measure.modes import MODES
from qat.measure.rounds import Timing
from qat.measure.speed_parts import PEERS, STEP_REFERENCES
from qat.measure.speed_tables import scaling_table, shares_table, startup_table, timing_table
from qat.measure.tables import ResultTable, for_terminal

MISSING = 'brevitas is not installed: python -m pip install --editable ".[bench]"'


def lines(table: ResultTable) -> list[str]:
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(for_terminal(table))
    return [line.rstrip() for line in capture.get().splitlines() if line.strip()]


def test_timings() -> None:
    timings = [
        Timing(ops.FLOOR, seconds=[0.002, 0.004, 0.003]),
        Timing(ops.OBSERVED, "compiled", [0.004, 0.008, 0.006]),
        Timing("Brevitas", missing=MISSING),
        Timing("broken", error="ValueError: [this]"),
    ]
    shown = lines(timing_table("Title", timings, ops.OP_REFERENCES))
    assert shown[0] == "Title"
    assert " ".join(shown[1:3]).split() == ["/", "/", "path", "ms", "spread", "floor", "observed"]
    assert shown[4].split()[-5:] == ["3.00", "33", "%", "1.00", "0.500"]
    assert shown[5].split() == ["qat,", "observed", "compiled", "6.00", "33", "%", "2.00", "1.00"]
    assert " ".join(shown[6:]) == f"Brevitas: {MISSING} broken: failed: ValueError: [this]"


def test_a_reference_that_did_not_run_has_no_column() -> None:
    shown = lines(timing_table("Title", [Timing(ops.OBSERVED, seconds=[1.0])], ops.OP_REFERENCES))
    assert "floor" not in " ".join(shown)


@pytest.mark.parametrize(
    ("names", "references"),
    [
        ([*MODES, *PEERS], STEP_REFERENCES),
        ([c.name for c in ops.op_candidates((1, 1), "cpu")], ops.OP_REFERENCES),
    ],
)
def test_the_longest_names_fit(names: list[str], references: dict[str, str]) -> None:
    timings = [Timing(name, "compiled", [0.123]) for name in names]
    shown = lines(timing_table("Title", timings, references))
    assert [name for name in names if not any(line.startswith(f"{name} ") for line in shown)] == []
    assert [line for line in shown if "…" in line] == []


def test_sizes() -> None:
    small = [Timing(ops.FLOOR, seconds=[1e-5]), Timing(ops.OBSERVED, seconds=[2e-5])]
    large = [Timing(name, missing="too large") for name in (ops.FLOOR, ops.OBSERVED)]
    shown = lines(scaling_table({10_000: small, 100_000: large}, ops.FLOOR))
    assert shown[-3].split() == ["10,000", "0.0100", "0.0200", "(2.00)"]
    assert shown[-2].split() == ["100,000", "-", "-"]
    assert shown[-1] == "too large"


def test_shares() -> None:
    seconds = {"convolution": 0.06, "BatchNorm": 0.02, "quantizers": 0.01, "rest": 0.01}
    assert lines(shares_table("Title", {"qat": seconds}))[-1].split() == [
        *("qat", "100"),
        *("60", "%", "20", "%", "10", "%", "10", "%"),
    ]


def test_first_use() -> None:
    cold, warm = {"kernels": 30.0, "steps": [4, 1, 1, 1]}, {"kernels": 5.0, "steps": [3, 2, 1, 1]}
    good = {"name": "qat", "uses": {"cold": cold, "warm": warm}, "error": ""}
    bad = {"name": "other", "uses": {"cold": cold}, "error": "RuntimeError: [x]"}
    shown = lines(startup_table("Title", [good, bad]))
    assert shown[-2].split() == ["qat", "30.0", "3.0", "5.0", "3.0"]
    assert shown[-1] == "other: failed: RuntimeError: [x]"
