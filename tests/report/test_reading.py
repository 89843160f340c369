"""The sentences say what the numbers say, whichever way those turn out."""

import math

import pytest

from qat.report.reading import curves_reading, headline, table_reading


def plain(text):
    return text.replace("\u00a0", " ")


def without(results, *setups):
    return [run for run in results if run["setup"] not in setups]


def test_headline_of_a_gain(changed):
    results = changed(zero=[0.1, 0.1, 0.13], ste=[0.96, 0.97, 0.98], float=[0.98, 0.98, 0.98])
    assert plain(headline(results)) == (
        "The straight-through estimator gains 86.0 points: 97.0 ± 1.0 % test accuracy with it, 11.0 ± 2.0 % "
        "with round's true zero gradient; float training ends at 98.0 ± 0.0 %, 1.0 points above `ste`, "
        "within the spread. Checkpointing changed no loss, weight or buffer and kept 31 % of the plain run's "
        "activation bytes."
    )


def test_headline_when_ste_is_worse(changed):
    text = headline(changed(zero=[0.8, 0.81, 0.8], ste=[0.7, 0.71, 0.7]))
    assert text.startswith("The straight-through estimator did worse than the zero gradient: 70.3")


def test_headline_when_the_spreads_overlap(changed):
    text = headline(changed(zero=[0.8, 0.9, 0.8], ste=[0.9, 0.95, 0.97]))
    assert text.startswith("It is not shown that the straight-through estimator helps: 94.0")
    assert "and the spreads overlap" in text


def test_headline_of_a_tie(changed):
    text = headline(changed(zero=[0.0] * 3, ste=[0.0] * 3))
    assert text.startswith("`ste` and `zero` end at the same test accuracy, 0.0")


@pytest.mark.parametrize(
    ("float_", "words"),
    [
        ([0.5, 0.5, 0.5], "float training ends at 50.0 ± 0.0 %, 40.0 points below `ste`."),
        ([0.9, 0.9, 0.9], "float training ends at 90.0 ± 0.0 %, the same as `ste`."),
        ([0.9001, 0.9001, 0.9001], "float training ends at 90.0 ± 0.0 %, less than 0.1 points above `ste`."),
    ],
)
def test_headline_of_float(changed, float_, words):
    assert words in plain(headline(changed(ste=[0.9] * 3, float=float_)))


def test_headline_without_float(results):
    assert "float" not in headline(without(results, "float"))


def test_headline_without_zero_ranks_what_is_there(changed):
    results = without(changed(ste=[0.9] * 3, float=[0.95] * 3), "zero", "checkpointed")
    assert plain(headline(results)) == "Test accuracy: `float` 95.0 ± 0.0 %, `ste` 90.0 ± 0.0 %."


def test_headline_of_nothing_but_nan(result_of):
    result = result_of("ste")
    result["test"] = {"accuracy": math.nan, "loss": math.nan}
    assert headline([result]) == "No setup has a finite test accuracy; `ste` diverged."


def test_headline_warns_of_an_unequal_pair(results):
    assert "WARNING" not in headline(results)
    results[-1]["difference"]["buffers"] = 1e-30
    assert headline(results).endswith("WARNING: checkpointed and plain training differ, which they must not.")


def test_curves_reading(results):
    text = plain(curves_reading(results))
    assert text.startswith("After the last epoch `float` has the highest validation accuracy (97.9")
    assert "and `zero` the lowest (11.5" in text
    assert "the bands of `float` and `ste` do not overlap there" in text
    assert text.endswith("`ste` and `checkpointed` lie exactly on each other.")


def test_curves_reading_sees_one_bit_of_difference(results):
    value = results[3]["epochs"][2]["val_loss"]
    results[3]["epochs"][2]["val_loss"] = math.nextafter(value, 1)
    assert "lie exactly" not in curves_reading(results)


def test_curves_reading_of_overlapping_bands(results):
    for run, accuracy in zip(results[3:9], [0.9, 0.95, 0.94, 0.94, 0.96, 0.95], strict=True):
        run["epochs"][-1]["val_accuracy"] = accuracy
    assert "the bands of `float` and `ste` overlap there" in curves_reading(without(results, "checkpointed"))


def test_curves_reading_of_a_tie(results_of):
    results = results_of(seeds=1)
    for run in results:
        run["epochs"][-1]["val_accuracy"] = 0.5
    assert plain(curves_reading(results)).startswith(
        "All setups end at the same validation accuracy, 50.0 %;"
    )


def test_curves_reading_of_one_run(result_of):
    assert plain(curves_reading([result_of("ste")])) == "`ste` ends at 96.9 % validation accuracy."


def test_curves_reading_of_diverged_seeds(results):
    results[3]["epochs"][4]["train_loss"] = math.nan
    assert "; 1 of 3 seeds of `ste` diverged." in curves_reading(results)


def test_curves_reading_without_a_finite_accuracy(result_of):
    result = result_of("ste")
    for epoch in result["epochs"]:
        epoch["val_accuracy"] = math.nan
    assert curves_reading([result]) == "No run has a finite validation accuracy."


def test_table_reading(results):
    text = table_reading(results)
    assert text.startswith(
        "90 % validation accuracy is first reached by `ste`, `float` and `checkpointed` in epoch 3"
    )
    assert ", and never by `zero`; `ste` takes 1.16 times float's seconds and 0.46 times its bytes" in text
    assert "`checkpointed` takes 1.47 times float's seconds and 0.14 times its bytes." in text


def test_table_reading_without_float(results):
    assert "float" not in table_reading(without(results, "float"))


def test_table_reading_of_one_seed(results_of, results):
    assert table_reading(results_of(seeds=1)).endswith("how much chance moves these numbers is unknown.")
    assert "chance" not in table_reading(results)


def test_table_reading_of_a_lower_target(results_of):
    text = table_reading(results_of(seeds=1, epochs=1))
    assert text.startswith(
        "70 % validation accuracy, the target because no run reaches 90 %, is first reached by `ste`"
    )


def test_table_reading_of_no_accuracy_at_all(result_of):
    result = result_of("zero")
    for epoch in result["epochs"]:
        epoch["val_accuracy"] = 0.0
    assert table_reading([result]).startswith(
        "No run reaches even 5 % validation accuracy, so no target is set"
    )
