"""Setups that must be equal: equal, unequal, or not known."""

import math

import pytest

from qat.report.pairs import pairs
from qat.report.readings import pair_reading


def test_equal_runs(results, grouped):
    (pair,) = pairs(grouped(results))
    assert pair.differences == {"losses": 0, "weights": 0, "buffers": 0}
    assert (len(pair.digests), pair.compared, pair.differ) == (42, True, [])
    assert pair_reading(pair) == (
        "`checkpointed` and `ste` are the same training to the last bit (seeds 0, 1 and 2); `checkpointed` "
        "kept 0.31 times the bytes and took 1.27 times the seconds."
    )


@pytest.mark.parametrize(
    ("field", "word"), [("losses", "losses"), ("parameters", "weights"), ("buffers", "buffers")]
)
@pytest.mark.parametrize(("value", "text"), [(1e-30, "1.0e-30"), (math.nan, "NaN")])
def test_any_difference_is_said_loudly(results, grouped, field, word, value, text):
    results[-1]["difference"][field] = value
    (pair,) = pairs(grouped(results))
    assert pair_reading(pair).startswith(
        f"NOT EQUAL: `checkpointed` and `ste` differ in {word} ({text}) (seeds 0, 1 and 2);"
    )


def test_one_digest_is_enough(results, grouped):
    results[-1]["digests"]["fc.bias"] = "other"
    assert "differ in 1 of 42 digests (seeds" in pair_reading(pairs(grouped(results))[0])


def test_a_key_that_one_run_lacks_differs(results, grouped):
    del results[3]["digests"]["fc.bias"]
    assert pairs(grouped(results))[0].digests.count(False) == 1


def test_either_run_may_hold_the_difference(results, grouped):
    for plain, checkpointed in zip(results[3:6], results[9:], strict=True):
        plain["difference"] = checkpointed.pop("difference") | {"to": "checkpointed", "losses": 0.5}
    assert pairs(grouped(results))[0].differences["losses"] == 0.5


def test_a_difference_to_another_setup_does_not_count(results, grouped):
    results[3]["difference"] = {"to": "packed", "losses": 1.0, "parameters": 1.0, "buffers": 1.0}
    assert pairs(grouped(results))[0].differ == []


def test_only_seeds_of_both_count(results, grouped):
    (pair,) = pairs(grouped(results[:4] + results[9:]))
    assert [(run.seed, other.seed) for run, other in pair.runs] == [(0, 0)]


def test_no_pair(results, grouped):
    assert pairs(grouped(results[:9])) == []


@pytest.mark.parametrize("bits", [8, 1])
def test_a_difference_at_one_point_is_enough(bits_results, grouped, bits):
    (pair,) = pairs(grouped(bits_results))
    assert "to the last bit (seeds 0, 1 and 2 at 5 points)" in pair_reading(pair)
    run = next(r for r in bits_results if r["setup"] == "checkpointed" and bits in r["sweep"].values())
    run["difference"]["buffers"] = 1e-9
    assert pairs(grouped(bits_results))[0].differ == ["buffers (1.0e-9)"]


def test_what_was_not_recorded_is_not_called_equal(results, grouped):
    for run in results:
        run.pop("difference", None)
    assert pair_reading(pairs(grouped(results))[0]).startswith(
        "`checkpointed` and `ste` end in the same state"
    )
    for run in results:
        run["digests"] = {}
    (pair,) = pairs(grouped(results))
    assert not pair.compared
    assert pair_reading(pair).startswith("Whether `checkpointed` and `ste` are equal was not recorded")
