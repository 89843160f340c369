"""Less memory against plain: equal, unequal, or not known."""

import math

import pytest

from qat.report.pair import pair_reading, pairs


def test_equal_runs(results):
    pair = pairs(results)[0]
    assert (pair.losses, pair.parameters, pair.buffers, pair.unequal, pair.tensors) == (0, 0, 0, 0, 42)
    assert pair.identical
    assert pair_reading(pair) == (
        "`checkpointed` and `ste` are the same training to the last bit (seeds 0, 1 and 2); checkpointing "
        "kept 0.31 times the bytes and took 1.27 times the seconds."
    )


@pytest.mark.parametrize(
    ("field", "word"), [("losses", "losses"), ("parameters", "weights"), ("buffers", "buffers")]
)
@pytest.mark.parametrize("value", [1e-30, math.nan])
def test_any_difference_is_said_loudly(results, field, word, value):
    results[-1]["difference"][field] = value
    pair = pairs(results)[0]
    assert pair.compared
    assert not pair.identical
    assert pair_reading(pair).startswith(
        f"NOT EQUAL: `checkpointed` and `ste` differ in {word} (seeds 0, 1 and 2);"
    )


def test_a_digest_is_enough(results):
    results[-1]["digests"]["fc.bias"] = "other"
    assert "differ in 1 of 42 digests of the final states" in pair_reading(pairs(results)[0])


def test_a_key_that_one_run_lacks_differs(results):
    del results[3]["digests"]["fc.bias"]
    assert pairs(results)[0].unequal == 1


def test_the_plain_run_may_hold_the_difference(results):
    for plain, checkpointed in zip(results[3:6], results[9:], strict=True):
        plain["difference"] = checkpointed.pop("difference") | {"losses": 0.5}
    assert pairs(results)[0].losses == 0.5


def test_each_setup_that_saves_memory_is_compared_with_the_plain_one(results):
    packed = [run | {"setup": "packed", "saved_bytes": run["saved_bytes"] / 2} for run in results[9:]]
    packed[0] = packed[0] | {"difference": {"losses": 0.25, "parameters": 0.0, "buffers": 0.0}}
    first, second = pairs(results + packed)
    assert (first.setup, second.setup) == ("checkpointed", "packed")
    assert (first.losses, second.losses) == (0, 0.25)
    assert second.bytes_ratio == first.bytes_ratio / 2
    assert "packing kept" in pair_reading(second)


def test_only_seeds_of_both_count(results):
    assert pairs(results[:4] + results[9:])[0].seeds == [0]


def test_no_pair(results):
    assert pairs(results[:9]) == []


def test_what_was_not_recorded_is_not_called_equal(results):
    for run in results:
        run.pop("difference", None)
    assert pair_reading(pairs(results)[0]).startswith("`checkpointed` and `ste` end in the same state")
    for run in results:
        run["digests"] = {}
    pair = pairs(results)[0]
    assert not pair.identical
    assert pair_reading(pair).startswith("Whether `checkpointed` and `ste` are equal was not recorded")
