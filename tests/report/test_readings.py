"""The sentences say what the numbers say, whichever way those turn out."""

import math

import pytest

from qat.experiment.results import load_results
from qat.report import readings
from qat.report.groups import group
from qat.report.tables import health_table

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
RATE = "model.learning_rate"


@pytest.fixture
def say(grouped):
    """The sentence of that name about results."""

    def text(name, results):
        return getattr(readings, name)(grouped(results)).replace("\u00a0", " ")

    return text


@pytest.fixture
def cells(result_of):
    """One run for each accuracy of `{setup: {bits: accuracy}}`, and one of float."""

    def make(accuracies, float_=0.97):
        runs = [
            (result_of(name, sweep={BITS: bits}), value)
            for name, found in accuracies.items()
            for bits, value in found.items()
        ]
        runs += [] if float_ is None else [(result_of("float"), float_)]
        for run, value in runs:
            run["test"]["accuracy"] = value
        return [run for run, _ in runs]

    return make


def without(results, *setups):
    return [run for run in results if run["setup"] not in setups]


def test_headline_ranks_the_setups(changed, say):
    results = changed(
        zero=[0.1, 0.1, 0.13],
        ste=[0.96, 0.97, 0.98],
        checkpointed=[0.96, 0.97, 0.98],
        float=[0.98, 0.98, 0.98],
    )
    assert say("headline", results) == (
        "`float` had the highest test accuracy, 98.0 ± 0.0 %; `ste` and `checkpointed` followed with "
        "97.0 ± 1.0 %, 1.0 points lower, within the spread; `zero` followed with 11.0 ± 2.0 %, 86.0 points "
        "lower, beyond the spread. `checkpointed` equalled `ste` to the last bit and kept 31 % of its "
        "activation bytes."
    )


def test_headline_of_many_setups_has_the_first_two_and_the_last(results_of, say):
    text = say("headline", results_of(("zero", "ste", "float", "ewgs", "soft"), seeds=1))
    assert text.count("followed with") == 1
    assert text.endswith("`zero` came last with 11.5 %.")


def test_headline_of_a_tie(changed, say):
    results = without(changed(zero=[0.0] * 3, ste=[0.0] * 3), "float", "checkpointed")
    assert say("headline", results) == "`zero` and `ste` had the highest test accuracy, 0.0 ± 0.0 %."


def test_headline_of_nothing_but_nan(result_of, say):
    result = result_of("ste") | {"test": {"accuracy": math.nan, "loss": math.nan}}
    assert say("headline", [result]) == "No setup had a finite test accuracy; `ste` diverged."


def test_headline_warns_of_an_unequal_pair(results, say):
    results[-1]["difference"]["buffers"] = 1e-30
    assert say("headline", results).endswith("WARNING: `checkpointed` and `ste` differ, which they must not.")


def test_headline_counts_the_runs_that_are_missing(tmp_path, results, write_results):
    write_results(tmp_path, results)
    for path in tmp_path.glob("float-*/result.json"):
        path.unlink()
    assert readings.headline(group(load_results(tmp_path))).endswith(" Runs that are not finished: 3.")


def test_curves_reading(results, say):
    text = say("curves_reading", results)
    assert text.startswith("After the last epoch `float` had the highest validation accuracy (97.9")
    assert "and `zero` the lowest (11.5" in text
    assert text.endswith("`ste` and `checkpointed` lie exactly on each other.")


def test_curves_reading_sees_one_bit_of_difference(results, say):
    value = results[3]["epochs"][2]["val_loss"]
    results[3]["epochs"][2]["val_loss"] = math.nextafter(value, 1)
    assert "lie exactly" not in say("curves_reading", results)


def test_curves_reading_of_one_run(result_of, say):
    assert say("curves_reading", [result_of("ste")]) == (
        "After the last epoch `ste` had the highest validation accuracy (96.9 %)."
    )


def test_curves_reading_of_diverged_seeds(results, say):
    results[3]["epochs"][4]["train_loss"] = math.nan
    assert "; `ste` diverged in 1 of 3 runs." in say("curves_reading", results)


def test_curves_reading_without_a_finite_accuracy(result_of, say):
    result = result_of("ste")
    for epoch in result["epochs"]:
        epoch["val_accuracy"] = math.nan
    assert say("curves_reading", [result]) == "No run had a finite validation accuracy."


def test_result_reading(results, results_of, say):
    assert say("result_reading", results) == (
        "90 % validation accuracy was first reached by `ste`, `float` and `checkpointed` in epoch 3, and "
        "never by `zero`; the seconds were 1.13 (`zero`) to 1.47 (`checkpointed`) times those of float; the "
        "bytes were 0.14 (`checkpointed`) to 0.46 (`ste`) times those of float."
    )
    assert "float" not in say("result_reading", without(results, "float"))
    assert say("result_reading", results_of(seeds=1)).endswith(
        "how much chance moves these numbers is unknown."
    )


def test_result_reading_of_a_lower_target(results_of, say):
    assert say("result_reading", results_of(seeds=1, epochs=1)).startswith(
        "70 % validation accuracy, the target because no run reached 90 %, was first reached by `ste`"
    )


def test_result_reading_of_no_accuracy_at_all(result_of, say):
    result = result_of("zero")
    for epoch in result["epochs"]:
        epoch["val_accuracy"] = 0.0
    assert say("result_reading", [result]).startswith("No run reached even 5 % validation accuracy")


def test_one_holds_up_longest(cells, say):
    results = cells({"ste": {8: 0.97, 4: 0.96, 2: 0.9}, "ewgs": {8: 0.96, 4: 0.96, 2: 0.95}})
    assert say("headline", results) == (
        "`ewgs` held up longest, within 2 points of float (97.0 %) down to 2 bits."
    )
    assert say("sweep_reading", results) == (
        "`ste` fell more than 2 points below float at bits 2; `ewgs` stayed within 2 points of float."
    )


def test_exactly_two_points_below_still_holds_and_a_little_more_does_not(cells, say):
    assert "down to 2 bits" in say("headline", cells({"ste": {4: 0.97, 2: 0.95}}))
    assert "down to 4 bits" in say("headline", cells({"ste": {4: 0.97, 2: 0.9499}}))


def test_a_setup_that_recovers_at_fewer_bits_has_not_held_up(cells, say):
    results = cells({"ste": {8: 0.97, 4: 0.9, 2: 0.97}, "soft": {8: 0.97, 4: 0.97, 2: 0.9}})
    assert say("headline", results).startswith("`soft` held up longest")
    assert say("headline", results).endswith("down to 4 bits.")


def test_ties_and_points_that_are_missing(cells, say):
    same = {8: 0.97, 4: 0.5}
    results = cells({"ste": same, "ewgs": same, "zero": {8: 0.1, 4: 0.1}, "soft": {8: 0.97}})
    assert say("headline", results).startswith("`ste`, `ewgs` and `soft` held up longest")
    assert say("sweep_reading", results) == (
        "`ste` and `ewgs` fell more than 2 points below float at bits 4; `zero` fell more than 2 points "
        "below float at each value; `soft` stayed within 2 points of float; `soft` has 1 of 2 runs; `ste` "
        "and `ewgs` ended at the same accuracies."
    )


def test_seeds_that_are_missing(cells, result_of, say):
    results = [*cells({"ste": {8: 0.97, 4: 0.97}, "zero": {8: 0.1, 4: 0.1}}), result_of("ste", 1, {BITS: 8})]
    assert "; `zero` has 2 of 3 runs." in say("sweep_reading", results)


def test_nobody_holds_up(cells, say):
    assert say("headline", cells({"zero": {8: 0.1, 4: 0.97}})) == (
        "No setup stayed within 2 points of float (97.0 %) at its widest bits."
    )


@pytest.mark.parametrize("float_", [None, math.nan])
def test_without_float_the_best_point_of_each_setup(cells, say, float_):
    results = cells({"ste": {8: 0.97, 4: 0.9}, "ewgs": {8: 0.9, 4: 0.96}}, float_)
    assert say("headline", results) == (
        "`ste` had the highest test accuracy, 97.0 % at 8 bits; `ewgs` followed with 96.0 % at 4 bits, "
        "1.0 points lower."
    )
    assert "float" not in say("sweep_reading", results)


def test_an_accuracy_that_is_not_finite_is_below(cells, say):
    assert say("headline", cells({"ste": {8: 0.97, 4: math.nan, 2: 0.97}})).endswith("down to 8 bits.")


def test_the_best_value_at_the_end_of_a_sweep_is_said(results_of, say):
    inner = results_of(("ste",), seeds=1, sweep={RATE: [0.001, 0.003, 0.01]})
    assert say("headline", inner) == "`ste` had the highest test accuracy, 96.9 % at learning_rate 0.003."
    assert say("sweep_reading", inner) == "Each setup has 3 runs."
    outer = results_of(("ste",), seeds=1, sweep={RATE: [0.01, 0.03, 0.1]})
    assert say("sweep_reading", outer) == "`ste` did best at the end of the values, learning_rate 0.01."


def test_parameters_reading(results, say):
    assert say("parameters_reading", results) == (
        "Under `zero` 13 of 14 parameters got a gradient of exactly 0 in the first and the last epoch and "
        "never moved, which left `fc.bias` to learn; under `ste`, `float` and `checkpointed` every parameter "
        "got a gradient."
    )
    results[1]["gradient_norm"]["fc.weight"] = [0.0, 5e-324]
    assert "Under `zero` 12 of 14" in say("parameters_reading", results)
    results[2]["displacement"]["blocks.0.conv.weight"] = 1e-9
    assert "epoch and `blocks.0.conv.weight` moved all the same" in say("parameters_reading", results)


def test_parameters_reading_when_nothing_learns(results, say):
    for run in results[:3]:
        run["gradient_norm"]["fc.bias"] = [0.0, 0.0]
        run["displacement"]["fc.bias"] = 0.0
    assert "Under `zero` 14 of 14 parameters" in say("parameters_reading", results)
    assert "so that nothing learned" in say("parameters_reading", results)


def test_parameters_reading_of_a_gradient_that_is_not_finite(results, say):
    results[6]["gradient_norm"]["fc.bias"] = [0.1, math.nan]
    assert say("parameters_reading", results).endswith("some gradients of `float` were not finite.")


def test_costs_reading(result_of, say, layer_costs):
    runs = [result_of(name) | {"summary": layer_costs(4)} for name in ("zero", "ste", "float")]
    assert say("costs_reading", runs) == (
        "`zero` and `ste` took 12.5 % of float's weight bytes and 12.5 % of its bit operations, and left "
        "`fc` in float."
    )


def test_health_reading(result_of, grouped, layer_health):
    runs = [result_of("ste", seed) | {"health": {"fc": layer_health()}} for seed in (0, 1)]
    assert readings.health_reading(health_table(grouped(runs))) == "No layer is marked."
    runs[1]["health"]["fc"] |= {"clipped": [0.0, 0.11], "unchanged": [1.0], "oscillating": [0.21]}
    text = readings.health_reading(health_table(grouped(runs)))
    assert text.startswith("1 of 1 rows are marked, of `ste`. Where it is `clipped`, try activation_scale")
    assert text.count("try ") == 3
    runs[1]["health"]["fc"] |= {"clipped": [0.0], "unchanged": [0.5]}
    assert readings.health_reading(health_table(grouped(runs))).count("try ") == 1


def test_settings_reading(results, bits_results, say):
    assert say("settings_reading", results) == (
        "The setups differ in `model.quantization` and `model.checkpoint` alone; seeds 0, 1 and 2 each; one "
        "set of versions for all runs."
    )
    assert say("settings_reading", results[:6]).startswith(
        "The setups differ in `model.quantization.rounding` alone;"
    )
    assert say("settings_reading", results[:1]) == "Seed 0 each; one set of versions for all runs."
    swept = [run for run in bits_results if run["setup"] in ("ste", "ewgs")]
    assert say("settings_reading", swept).startswith(
        "The setups differ in `model.quantization.rounding` alone; seeds 0, 1 and 2 each;"
    )


def test_settings_reading_warns_of_unlike_runs(results, say):
    results[4]["settings"]["model"]["learning_rate"] = 0.1
    results[5]["versions"]["torch"] = "2.0"
    text = say("settings_reading", results[:-1])
    assert "WARNING: the seeds of `ste` were trained with different settings" in text
    assert "the groups had different seeds" in text
    assert text.endswith("versions differ: `torch`.")
