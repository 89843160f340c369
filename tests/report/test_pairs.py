"""Setups that must be equal: equal, unequal, or not known."""

import math

import pytest

from qat.report.pairs import pairs


def test_equal_runs(results, grouped):
    (pair,) = pairs(grouped(results))
    assert (pair["setup"], pair["plain"], pair["runs"]) == ("checkpointed", "ste", 3)
    assert pair["differences"] == {"losses": "0", "weights": "0", "buffers": "0"}
    assert (len(pair["digests"]), pair["unequal"]) == (42, [])
    assert pair["saved_bytes"] == pytest.approx(3021 / 9812)
    assert pair["seconds"] == pytest.approx(1.27, abs=0.01)


@pytest.mark.parametrize(
    ("field", "word"), [("losses", "losses"), ("parameters", "weights"), ("buffers", "buffers")]
)
@pytest.mark.parametrize(("value", "text"), [(-1e-30, "1.0e-30"), (math.nan, "NaN")])
def test_any_difference_is_unequal(results, grouped, field, word, value, text):
    results[-1]["difference"][field] = value
    (pair,) = pairs(grouped(results))
    assert pair["unequal"] == [f"{word} ({text})"]


def test_one_digest_is_enough(results, grouped):
    results[-1]["digests"]["fc.bias"] = "other"
    assert pairs(grouped(results))[0]["unequal"] == ["1 of 42 digests"]


def test_a_key_that_one_run_lacks_differs(results, grouped):
    del results[3]["digests"]["fc.bias"]
    assert pairs(grouped(results))[0]["digests"].count(False) == 1


def test_either_run_may_hold_the_difference(results, grouped):
    for plain, checkpointed in zip(results[3:6], results[9:], strict=True):
        plain["difference"] = checkpointed.pop("difference") | {"to": "checkpointed", "losses": 0.5}
    assert pairs(grouped(results))[0]["differences"]["losses"] == "0.500"


def test_a_difference_to_another_setup_does_not_count(results, grouped):
    results[3]["difference"] = {"to": "packed", "losses": 1.0, "parameters": 1.0, "buffers": 1.0}
    assert pairs(grouped(results))[0]["unequal"] == []


def test_only_seeds_of_both_count(results, grouped):
    assert pairs(grouped(results[:4] + results[9:]))[0]["runs"] == 1


def test_no_pair(results, grouped):
    assert pairs(grouped(results[:9])) == []


@pytest.mark.parametrize("bits", [8, 1])
def test_a_difference_at_one_point_is_enough(bits_results, grouped, bits):
    assert pairs(grouped(bits_results))[0]["runs"] == 15
    run = next(r for r in bits_results if r["setup"] == "checkpointed" and bits in r["sweep"].values())
    run["difference"]["buffers"] = 1e-9
    assert pairs(grouped(bits_results))[0]["unequal"] == ["buffers (1.0e-9)"]


def test_what_was_not_recorded_is_absent(results, grouped):
    for run in results:
        run.pop("difference", None)
    assert pairs(grouped(results))[0]["differences"] == {}
