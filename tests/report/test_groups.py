"""Runs grouped by setup and point of the sweep, and what is computed from a group."""

import math

import pytest

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
RATE = "model.learning_rate"


def with_accuracies(result, *values):
    result["epochs"] = [result["epochs"][0] | {"epoch": n, "val_accuracy": v} for n, v in enumerate(values)]
    return result


def test_a_group_holds_the_seeds_of_a_setup_at_a_point(bits_results, grouped):
    groups = grouped(bits_results)
    assert [(one.setup, list(one.point.values())) for one in groups.every] == [
        (setup, bits)
        for setup in ("zero", "ste", "float", "checkpointed", "ewgs")
        for bits in ([[]] if setup == "float" else [[8], [4], [3], [2], [1]])
    ]
    assert {tuple(run.seed for run in one.runs) for one in groups.every} == {(0, 1, 2)}


def test_an_unswept_setup_belongs_to_every_point(bits_results, grouped):
    there = grouped(bits_results).at({BITS: 2})
    assert [(one.setup, one.point.get(BITS)) for one in there.every] == [
        *(("zero", 2), ("ste", 2), ("float", None)),
        *(("checkpointed", 2), ("ewgs", 2)),
    ]


def test_the_detail_has_the_most_setups_then_the_narrowest_bits_then_the_best_accuracy(results_of, grouped):
    results = results_of(seeds=1, sweep={BITS: [8, 4, 2], RATE: [0.001, 0.003]})
    groups = grouped(results)
    assert groups.detail_point == {BITS: 2, RATE: 0.003}
    assert [one.setup for one in groups.at(groups.detail_point).every] == [
        "zero",
        "ste",
        "float",
        "checkpointed",
    ]
    fewer = [r for r in results if r["setup"] != "checkpointed" or r["sweep"].get(BITS) != 2]
    assert grouped(fewer).detail_point == {BITS: 4, RATE: 0.003}


def test_without_a_sweep_the_detail_is_everything(results, grouped):
    groups = grouped(results)
    assert groups.detail_point == {}
    assert groups.at({}).every == groups.every


@pytest.mark.parametrize(
    ("best", "target"), [(0.95, 0.9), (0.9, 0.9), (0.899, 0.85), (0.7, 0.7), (0.04, 0.0), (math.nan, 0.0)]
)
def test_target(result_of, grouped, best, target):
    groups = grouped([with_accuracies(result_of("ste"), 0.0, best)])
    assert groups.target == pytest.approx(target, abs=1e-12)


def test_the_target_is_reached_by_the_run_that_set_it(result_of, grouped):
    for hundredths in range(5, 90, 3):
        groups = grouped([with_accuracies(result_of("ste"), hundredths / 100)])
        assert groups.every[0].epochs_to(groups.target) == [1]


def test_epochs_count_from_one(result_of, grouped):
    (one,) = grouped([with_accuracies(result_of("ste"), 0.5, 0.9, 0.8)]).every
    assert [one.epochs_to(target) for target in (0.5, 0.9, 0.91)] == [[1], [2], [None]]


def test_a_shorter_run_is_absent_later(result_of, grouped):
    runs = [with_accuracies(result_of("ste"), 0.5), with_accuracies(result_of("ste", 1), 0.7, 0.8)]
    curve = grouped(runs).every[0].curve("val_accuracy")
    assert [(s.low, s.high, len(s.values)) for s in curve] == [(0.5, 0.7, 2), (0.8, 0.8, 1)]


def test_seconds_ignore_a_slow_first_epoch(result_of, grouped):
    run = result_of("ste")
    for epoch, seconds in zip(run["epochs"], [90, 2, 2, 2, 2, 2, 2, 2], strict=True):
        epoch["seconds"] = seconds
    assert grouped([run]).every[0].seconds == 2


@pytest.mark.parametrize("quantization", [None, {"weight_bits": 32, "activation_bits": 32}])
def test_float_is_known_by_its_settings(results, grouped, quantization):
    for run in results:
        if run["setup"] == "float":
            run["setup"], run["settings"]["model"]["quantization"] = "full", quantization
    groups = grouped(results)
    assert [one.setup for one in groups.every if one.is_float] == ["full"]
    assert groups.beside_float(groups.every[1], "saved_bytes") == pytest.approx(9812 / 21440)
    without = grouped([run for run in results if run["setup"] != "full"])
    assert math.isnan(without.beside_float(without.every[0], "seconds"))
    assert without.shares_of_float("seconds").finite == []
    assert len(groups.shares_of_float("seconds").finite) == 3


def test_parameters_keep_the_order_of_the_network(result_of, grouped):
    first, second = result_of("ste"), result_of("ewgs")
    second["gradient_norm"]["blocks.0.scale"] = [1.0, 1.0]
    assert grouped([first, second]).parameters == [*first["gradient_norm"], "blocks.0.scale"]


def test_learning_is_both_gradients_and_the_distance(results, grouped):
    zero, ste, *_ = grouped(results).every
    assert [str(spread) for spread in ste.learning("fc.bias")] == ["0.0569", "0.00758", "2.46"]
    assert [str(spread) for spread in ste.learning("unknown")] == ["-", "-", "-"]
    assert (len(zero.without_gradient), ste.without_gradient) == (13, [])
    results[1]["gradient_norm"]["fc.weight"] = [0.0, 5e-324]
    assert len(grouped(results).every[0].without_gradient) == 12


def test_the_ranking_has_the_best_point_of_each_setup_with_an_accuracy(results_of, grouped):
    results = results_of(("zero", "ste", "float"), seeds=1, sweep={BITS: [8, 2]})
    results[0]["test"]["accuracy"] = results[1]["test"]["accuracy"] = None
    ranking = grouped(results).ranking
    assert [(one.setup, one.point) for one in ranking] == [("float", {}), ("ste", {BITS: 8})]


def test_a_loss_that_is_not_finite_is_a_diverged_run(results, grouped):
    results[3]["epochs"][4]["train_loss"] = math.nan
    results[4]["test"]["loss"] = math.inf
    assert [one.diverged for one in grouped(results).every] == [0, 2, 0, 0]


def test_the_health_after_the_last_epoch(result_of, grouped):
    runs = [
        result_of("ste", n) | {"health": {"fc": {"clipped": values}}}
        for n, values in enumerate(([0.1, 0.2], [0.3, None]))
    ]
    assert grouped(runs).every[0].health("fc", "clipped").values == [0.2]
