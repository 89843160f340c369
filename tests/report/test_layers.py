"""What runs recorded of their layers: costs and health, where they did."""

import math
import re

import pytest

from qat.experiment.results import load_results
from qat.report.costs import cost_rows, costing, costs_reading
from qat.report.health import health_reading, health_rows
from qat.report.write import write_report


def plain(text):
    return text.replace("\u00a0", " ")


def summary_of(bits):
    row = {"name": "fc", "kind": "QuantLinear", "rounding": "ste", "scale": "observed/learned"}
    row |= {"weight_bits": bits, "input_bits": 32, "macs": 1000, "bit_operations": 32000 * bits}
    size = {"weight_bytes": 125 * bits, "float_bytes": 4000}
    totals = {"macs": 1000, "bit_operations": 32000 * bits, "float_bit_operations": 1024000}
    return {"rows": [row | size], "left_float": {"fc": "its input has 32 bits"}, **size, **totals}


def healthy():
    shares = {"clipped": [0.5, 0.1], "unchanged": [0.9999], "oscillating": [0.2]}
    return shares | {"weight_scale": [0.0, 0.5], "activation_scale": [0.25]}


def test_costs(result_of):
    run = result_of("ste") | {"summary": summary_of(4)}
    assert costing([result_of("zero") | {"summary": summary_of(4)}, run]) is run
    assert costing([result_of("float") | {"summary": summary_of(32)}, result_of("ste")]) is None
    assert cost_rows(run) == [
        ["`fc`", "QuantLinear", "4 / float", "ste", "observed / learned", "1,000", "128,000", "500"],
        ["all layers", "", "", "", "", "1,000", "128,000", "500"],
        ["all in float", "", "", "", "", "1,000", "1,024,000", "4,000"],
    ]
    assert plain(costs_reading(run)) == (
        "The weights of `ste` take 12.5 % of float's bytes, a sample 12.5 % of its bit operations (MACs "
        "times both widths); left in float: `fc`."
    )


def test_health_marks_what_is_ill_and_nothing_else(result_of):
    runs = [result_of("ste", seed) | {"health": {"fc": healthy()}} for seed in (0, 1)]
    assert [plain(cell) for cell in health_rows(runs)[0]] == [
        *("`ste`", "`fc`", "10.0 %", "100.0 %", "20.0 %", "0.500", "0.250"),
    ]
    assert health_reading(runs) == "No layer is marked."
    ill = {"clipped": [0.0, 0.11], "unchanged": [1.0], "oscillating": [0.21], "weight_scale": [0.0]}
    runs[1]["health"]["fc"] |= ill
    assert [plain(cell) for cell in health_rows(runs)[0][2:]] == [
        *("! 11.0 %", "! 100.0 %", "! 21.0 %", "! 0", "0.250"),
    ]
    reading = health_reading(runs)
    assert reading.startswith("1 of 1 rows are marked, of `ste`. Where it is `clipped`, try activation_scale")
    assert reading.count("try ") == 3
    runs[1]["health"]["fc"] |= {"clipped": [0.0], "unchanged": [0.5]}
    assert health_reading(runs).count("try ") == 1
    for bits, mark in ((4, "! 21.0 %"), (8, "21.0 %")):
        runs[1]["summary"] = {"rows": [{"name": "fc", "weight_bits": bits}]}
        assert plain(health_rows(runs)[0][4]) == mark


def test_health_of_what_was_not_watched(result_of):
    run = result_of("ste") | {
        "health": {"fc": {"clipped": [0.1, math.nan], "unchanged": [], "oscillating": [None]}}
    }
    assert health_rows([run, result_of("zero")]) == [["`ste`", "`fc`", "-", "-", "-", "-", "-"]]


def test_sections_are_there_where_the_records_are(tmp_path, result_of, write_results):
    plain_run = result_of("zero", epochs=1)
    full = result_of("ste", epochs=1) | {"summary": summary_of(4), "health": {"fc": healthy()}}
    full["health"]["fc"]["clipped"] = [None, 0.9]
    for number, results in enumerate(([plain_run], [plain_run, full])):
        page = write_report(write_results(tmp_path / str(number), results)).read_text(encoding="utf-8")
        assert page.count("<h2>What the layers cost</h2>") == number
        assert page.count("<h2>Health of the quantizers</h2>") == number
        assert page.count('<td class="bad">! 90.0\u00a0%</td>') == number


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"summary": {"rows": []}}, "no 'left_float'"),
        ({"summary": summary_of("4")}, "expected a number"),
        ({"health": []}, "expected a mapping, got []"),
        ({"health": {"fc": []}}, "expected a mapping, got []"),
        ({"health": {"fc": {"clipped": ["many"]}}}, "expected a number, got 'many'"),
    ],
)
def test_broken_records_are_refused_by_name(tmp_path, result_of, write_results, change, reason):
    write_results(tmp_path, [result_of("ste") | change])
    with pytest.raises(ValueError, match=f"result.json: not a run's result: {re.escape(reason)}"):
        load_results(tmp_path)
