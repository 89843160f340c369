"""The tables of the pages and of the terminal."""

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from qat.experiment.results import load_results
from qat.report.tables import comparison_table, epochs_text, health_cells, result_table, settings

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
RATE = "model.learning_rate"


def plain(row):
    return [cell.replace("\u00a0", " ") for cell in row]


@pytest.fixture
def printed(tmp_path, write_results):
    """The lines that a terminal of 80 columns shows for results."""

    def lines(results):
        console = Console(file=io.StringIO(), width=80)
        console.print(comparison_table(load_results(write_results(tmp_path, results))))
        return console.file.getvalue().replace("\u00a0", " ").splitlines()

    return lines


def test_result_table(changed, grouped):
    header, *rows = result_table(grouped(changed(ste=[0.96, 0.97, 0.98])))
    assert header == ["setup", "test accuracy", "epochs to 90 %", "s / epoch", "saved MB", "MB / float"]
    assert plain(rows[1]) == ["ste", "97.0 ± 1.0 %", "3", "3.47", "9.81", "0.46"]
    assert [row[2] for row in rows] == ["never", "3", "3", "3"]


def test_points_are_counted_seed_by_seed(changed, grouped):
    groups = grouped(changed(ste=[0.96, 0.97, 0.98], zero=[0.90, 0.92, 0.91], float=[0.97, math.nan, 0.97]))
    listing = replace(groups.results.listing, against="ste")
    groups = replace(groups, results=replace(groups.results, listing=listing))
    header, *rows = result_table(groups)
    assert header[:4] == ["setup", "test accuracy", "points against ste", "epochs to 90 %"]
    assert [plain(row)[2] for row in rows] == ["-6.0 ± 1.0", "-", "+0.0 ± 1.0", plain(rows[3])[2]]


def test_points_at_each_point_of_a_sweep(results_of, grouped):
    groups = grouped(results_of(seeds=2, sweep={BITS: [8, 2]}))
    listing = replace(groups.results.listing, against="zero")
    groups = replace(groups, results=replace(groups.results, listing=listing))
    for one in groups.every:
        beside = next(
            o for o in groups.every if o.setup == "zero" and (o.point == one.point or not one.point)
        )
        if one.setup == "zero":
            assert groups.points(one).values == []
        elif one.point:
            pairs = zip(one.runs, beside.runs, strict=True)
            assert groups.points(one).values == [a.test.accuracy - b.test.accuracy for a, b in pairs]


def test_each_swept_option_is_a_column(results_of, grouped):
    header, *rows = result_table(grouped(results_of(seeds=1, sweep={BITS: [8, 2], RATE: [0.001, 0.01]})))
    assert header[:4] == ["setup", "bits", "learning_rate", "test accuracy"]
    assert [row[1:3] for row in rows[:4]] == [["8", "0.001"], ["8", "0.01"], ["2", "0.001"], ["2", "0.01"]]


def test_an_option_that_does_not_concern_a_setup(bits_results, grouped):
    assert [row[1] for row in result_table(grouped(bits_results)) if row[0] == "float"] == ["-"]


def test_no_ratio_without_float(results, grouped):
    assert [row[-1] for row in result_table(grouped(results[:6]))[1:]] == ["-", "-"]


@pytest.mark.parametrize(
    ("epochs", "text"),
    [
        ([3], "3"),
        ([3, 3], "3"),
        ([4, 2], "2 to 4"),
        ([None, None], "never"),
        ([3, None, 5], "3 to 5, 1 never"),
    ],
)
def test_epochs_text(epochs, text):
    assert epochs_text(epochs) == text


def test_a_name_is_not_markup(result_of, printed):
    assert any("[red]x" in line for line in printed([result_of("ste") | {"setup": "[red]x"}]))


def test_values_stay_whole_in_a_narrow_terminal(results_of, grouped, printed):
    results = results_of(
        ("zero", "packed_checkpointed", "float"), seeds=2, sweep={BITS: [8, 2], RATE: [0.001, 0.01]}
    )
    lines = printed(results)
    assert max(map(len, lines)) <= 80
    for row in result_table(grouped(results))[1:]:
        assert any(all(cell in line for cell in plain(row)) for line in lines)


def test_health_marks_what_is_ill_and_nothing_else(result_of, grouped, layer_health, layer_costs):
    runs = [result_of("ste", seed) | {"health": {"fc": layer_health()}} for seed in (0, 1)]
    assert plain(health_cells(grouped(runs).every[0], "fc")) == [
        *("10.0 %", "100.0 %", "20.0 %", "0.500", "0.250"),
    ]
    ill = {"clipped": [0.0, 0.11], "unchanged": [1.0], "oscillating": [0.21], "weight_scale": [0.0]}
    runs[1]["health"]["fc"] |= ill
    assert plain(health_cells(grouped(runs).every[0], "fc")) == [
        *("! 11.0 %", "! 100.0 %", "! 21.0 %", "! 0", "0.250"),
    ]
    for bits, mark in ((4, "! 21.0 %"), (8, "21.0 %")):
        runs[1]["summary"] = layer_costs(bits)
        assert plain(health_cells(grouped(runs).every[0], "fc"))[2] == mark


def test_health_of_what_was_not_observed(result_of, grouped):
    shares = {"clipped": [0.1, math.nan], "unchanged": [], "oscillating": [None]}
    (one,) = grouped([result_of("ste") | {"health": {"fc": shares}}]).every
    assert health_cells(one, "fc") == ["-", "-", "-", "-", "-"]


def test_settings(results, grouped):
    groups = grouped(results)
    found = settings(groups)
    assert found["data.batch_size"] == dict.fromkeys(("zero", "ste", "float", "checkpointed"), "128")
    assert list(found["model.quantization.rounding"].values()) == ["zero", "ste", "-", "ste"]
    assert found["model.checkpoint"]["checkpointed"] == "blocks.*"
    assert (found["seed"]["ste"], found["torch"]["ste"]) == ("0 / 1 / 2", "2.14.1")
    assert not {"meaning", "model.quantization"} & found.keys()
    groups.results.listing.setups["ste"] = "straight-through"
    assert list(settings(groups)["meaning"].values()) == ["-", "straight-through", "-", "-"]


def test_settings_are_text_under_dotted_names(result_of, grouped):
    run = result_of("ste") | {"settings": {"a": {"b": 1, "c": {}}, "d": None, "e": ["x", True], "f": []}}
    found = {name: values["ste"] for name, values in settings(grouped([run])).items()}
    assert found | {"a.b": "1", "a.c": "none", "d": "none", "e": "x, true", "f": "none"} == found


def test_swept_values_are_listed(bits_results, grouped):
    found = settings(grouped(bits_results))["model.quantization.weight_bits"]
    assert found["ste"] == "8 / 4 / 3 / 2 / 1"


def test_the_ratio_is_to_float_at_the_same_point(results_of, grouped):
    results = results_of(("ste", "float"), seeds=1, sweep={"data.batch_size": [64, 128]})
    for run in results:
        run["saved_bytes"] *= 2 if run["setup"] == "float" and run["sweep"]["data.batch_size"] == 128 else 1
    assert [row[-1] for row in result_table(grouped(results))[1:]] == ["0.46", "0.23", "1.00", "1.00"]


def test_titles_of_a_narrow_table_take_one_line(results, printed):
    assert any("test accuracy  epochs to 90 %" in line for line in printed(results))
