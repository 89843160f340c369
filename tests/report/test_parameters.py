"""Which parameters had a gradient and which moved."""

import math

from qat.report.parameters import layers_reading, parameter_names, without_gradient


def test_names_keep_the_order_of_the_network(result_of):
    first, second = result_of("ste"), result_of("ewgs")
    second["gradient_norm"]["blocks.0.scale"] = [1.0, 1.0]
    assert parameter_names([first, second]) == [*first["gradient_norm"], "blocks.0.scale"]


def test_one_seed_with_a_gradient_is_enough(results):
    zero = results[:3]
    assert len(without_gradient(zero)) == 13
    zero[1]["gradient_norm"]["fc.weight"] = [0.0, 5e-324]
    assert "fc.weight" not in without_gradient(zero)


def test_reading_of_the_usual_outcome(results):
    assert layers_reading(results) == (
        "Under `zero` 13 of 14 parameters got a gradient of exactly 0 in the first and the last epoch and "
        "never moved, which leaves `fc.bias` to learn; under `ste`, `float` and `checkpointed` every "
        "parameter got a gradient."
    )


def test_reading_when_zero_gradients_do_not_occur(results):
    for run in results[:3]:
        run["gradient_norm"] = results[3]["gradient_norm"]
    assert (
        layers_reading(results)
        == "Under `zero`, `ste`, `float` and `checkpointed` every parameter got a gradient."
    )


def test_reading_tells_what_moved_without_a_gradient(results):
    results[2]["displacement"]["blocks.0.conv.weight"] = 1e-9
    assert (
        "exactly 0 in the first and the last epoch and 1 of those moved all the same (`blocks.0.conv.weight`)"
        in (layers_reading(results))
    )


def test_reading_when_nothing_learns(results):
    for run in results[:3]:
        run["gradient_norm"]["fc.bias"] = [0.0, 0.0]
        run["displacement"]["fc.bias"] = 0.0
    assert "Under `zero` 14 of 14 parameters" in layers_reading(results)
    assert "so that nothing learned" in layers_reading(results)


def test_reading_counts_many_learners(results):
    for run in results[:3]:
        for name in ("blocks.3.bn.weight", "blocks.3.bn.bias", "fc.weight"):
            run["gradient_norm"][name] = [1.0, 1.0]
    assert "which leaves 4 others to learn" in layers_reading(results)


def test_reading_of_a_gradient_that_is_not_finite(results):
    results[6]["gradient_norm"]["fc.bias"] = (0.1, math.nan)
    assert layers_reading(results).endswith("some gradients of `float` were not finite.")
