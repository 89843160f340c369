"""Several widths in one report: the sentences, the table, the figure, and what is shown in detail."""

import io
import math

import pytest
from rich.console import Console

from qat.experiment.results import load_results, width
from qat.report.bits_figure import bits_alt, bits_figure
from qat.report.bits_reading import accuracy_caption, accuracy_table, bits_headline, bits_reading
from qat.report.drawing import png, svg
from qat.report.pair import pair_reading, pairs
from qat.report.palette import looks
from qat.report.reading import headline
from qat.report.settings import settings_reading
from qat.report.table import comparison_table
from qat.report.widths import at_width, bits_text, detail_width, widths
from qat.report.write import write_report


def plain(text):
    return text.replace("\u00a0", " ")


@pytest.fixture
def cells(result_of):
    """One run for each accuracy of `{setup: {bits: accuracy}}`, and float at 97 % unless told otherwise."""

    def make(accuracies, float_=0.97):
        runs = [
            (result_of(name, bits=bits), value)
            for name, of in accuracies.items()
            for bits, value in of.items()
        ]
        runs += [] if float_ is None else [(result_of("float"), float_)]
        for run, value in runs:
            run["test"]["accuracy"] = value
        return [run for run, _ in runs]

    return make


def test_widths_are_read_from_the_settings(widths_results, result_of):
    assert widths(widths_results) == [(8, 8), (4, 4), (3, 3), (2, 2), (1, 1)]
    assert width(result_of("float")) is None
    assert width(result_of("ste") | {"settings": {}}) is None
    assert [bits_text([(1, 1)]), bits_text([(8, 8), (3, 2), (1, 1)])] == ["1 bit", "8, w3a2 and 1 bits"]


def test_the_detail_is_the_narrowest_width_that_most_setups_have(cells):
    results = cells({"ste": {8: 0.9, 4: 0.9, 2: 0.9}, "zero": {8: 0.9, 4: 0.9}})
    assert detail_width(results) == (4, 4)
    assert {(run["setup"], width(run)) for run in at_width(results, (2, 2))} == {
        ("ste", (2, 2)),
        ("float", None),
    }


def test_one_holds_up_longest(cells):
    results = cells({"ste": {8: 0.97, 4: 0.96, 2: 0.9}, "ewgs": {8: 0.96, 4: 0.96, 2: 0.95}})
    assert plain(bits_headline(results)) == (
        "`ewgs` holds up longest, within 2 points of float (97.0 %) in the mean down to 2 bits."
    )
    assert bits_reading(results) == (
        "`ste` falls more than 2 points below float at 2 bits; `ewgs` stays within 2 points of float at each "
        "width run."
    )


def test_exactly_two_points_below_still_holds_and_a_little_more_does_not(cells):
    assert "down to 2 bits" in bits_headline(cells({"ste": {4: 0.97, 2: 0.95}}))
    assert "down to 4 bits" in bits_headline(cells({"ste": {4: 0.97, 2: 0.9499}}))


def test_who_recovers_at_fewer_bits_has_not_held_up(cells):
    results = cells({"ste": {8: 0.97, 4: 0.9, 2: 0.97}, "soft": {8: 0.97, 4: 0.97, 2: 0.9}})
    assert bits_headline(results).startswith("`soft` holds up longest")
    assert bits_headline(results).endswith("down to 4 bits.")
    assert "`ste` falls more than 2 points below float at 4 bits; `soft` falls" in bits_reading(results)


def test_ties(cells):
    same = {8: 0.97, 4: 0.5}
    results = cells({"ste": same, "ewgs": same, "zero": {8: 0.1, 4: 0.1}})
    assert plain(bits_headline(results)) == (
        "`ste` and `ewgs` hold up longest, within 2 points of float (97.0 %) in the mean down to 8 bits."
    )
    assert bits_reading(results) == (
        "`ste` and `ewgs` fall more than 2 points below float at 4 bits; `zero` falls more than 2 points "
        "below float at each width; `ste` and `ewgs` end at the same accuracy at each width."
    )
    assert bits_headline(cells({"ste": same, "ewgs": same})).startswith("All setups hold up equally long, ")


def test_nobody_holds_up(cells):
    assert plain(bits_headline(cells({"zero": {8: 0.1, 4: 0.97}}))) == (
        "No setup stays within 2 points of float (97.0 %) at its widest, 8 bits."
    )


def test_missing_cells_and_seeds_are_named(cells, result_of):
    results = cells({"ste": {8: 0.97, 4: 0.97, 2: 0.9}, "ewgs": {8: 0.97, 2: 0.97}})
    results.append(result_of("ste", 1, bits=8))
    assert bits_headline(results).endswith("down to 2 bits (of the widths that were run).")
    assert bits_reading(results).endswith(
        "; `ste` has 1 of 2 seeds at 4 bits; `ste` has 1 of 2 seeds at 2 bits; `ewgs` was not run at 4 bits; "
        "`ewgs` has 1 of 2 seeds at 8 bits; `ewgs` has 1 of 2 seeds at 2 bits."
    )
    assert accuracy_table(results)[1][1][2] == "-"


def test_without_float_the_best_of_each_width(cells):
    accuracies = {"ste": {8: 0.97, 4: 0.97, 2: 0.9}, "ewgs": {8: 0.97, 4: 0.96, 2: 0.95}}
    for float_, why in ((None, "was not run"), (math.nan, "has no finite test accuracy")):
        results = cells(accuracies, float_)
        assert bits_headline(results) == (
            "Highest test accuracy: `ste` and `ewgs` at 8 bits, `ste` at 4 bits, `ewgs` at 2 bits."
        )
        assert bits_reading(results) == f"`float` {why}, so that nothing says where a setup falls off."


def test_an_accuracy_that_is_not_finite_is_no_small_one(cells):
    results = cells({"ste": {8: 0.97, 4: math.nan, 2: 0.9}})
    assert bits_reading(results) == (
        "`ste` falls more than 2 points below float at 2 bits; `ste` has no finite accuracy at 4 bits."
    )
    assert bits_headline(results).endswith("down to 8 bits.")


def test_table_and_caption(widths_results):
    header, rows = accuracy_table(widths_results)
    assert header == ["setup", "8 bits", "4 bits", "3 bits", "2 bits", "1 bit"]
    assert [row[0] for row in rows] == ["`zero`", "`ste`", "`checkpointed`", "`ewgs`"]
    assert [plain(cell) for cell in rows[1][3:]] == ["96.3 ± 0.2 %", "91.6 ± 0.2 %", "63.7 ± 0.2 %"]
    assert plain(accuracy_caption(widths_results)).endswith(
        "`float`, which has no bits, ends at 97.9 ± 0.4 %."
    )


def test_headline_keeps_divergence_and_the_pair(widths_results):
    assert headline(widths_results).startswith("`ste`, `checkpointed` and `ewgs` hold up longest, ")
    assert "Checkpointing changed no loss, weight or buffer" in headline(widths_results)
    widths_results[0]["test"]["loss"] = math.nan
    assert "; 1 of 15 runs of `zero` diverged." in headline(widths_results)


@pytest.mark.parametrize("bits", [(8, 8), (1, 1)])
def test_an_unequal_pair_is_an_alarm_at_whichever_width(widths_results, bits):
    assert pairs(widths_results)[0].identical
    assert "(seeds 0, 1 and 2; 8, 4, 3, 2 and 1 bits)" in pair_reading(pairs(widths_results)[0])
    run = next(r for r in widths_results if r["setup"] == "checkpointed" and width(r) == bits)
    run["difference"]["buffers"] = 1e-9
    assert pair_reading(pairs(widths_results)[0]).startswith("NOT EQUAL: ")
    assert "WARNING" in headline(widths_results)


def test_widths_are_not_called_unlike_settings(widths_results):
    text = settings_reading([run for run in widths_results if run["setup"] in ("ste", "ewgs")])
    assert text.startswith("The setups differ in `quantization.rounding` alone; seeds 0, 1 and 2 each;")
    run = next(r for r in widths_results if r["setup"] == "ste" and r["seed"] == 1)
    run["settings"]["learning_rate"] = 0.1
    assert "WARNING: the seeds of `ste` were trained" in settings_reading(widths_results)


@pytest.mark.parametrize("narrow", [False, True])
def test_figure(cells, narrow):
    results = cells({"ste": {8: 0.97, 4: 0.96, 1: 0.5}, "ewgs": {8: 0.9, 1: 0.6}})
    look = looks(results)
    figure = bits_figure(results, narrow)
    for ax in figure.axes:
        assert [text.get_text() for text in ax.get_xticklabels()] == ["8", "4", "1"]
        lines = {line.get_color(): line for line in ax.lines}
        assert list(lines[look["ste"].light].get_xdata()) == list(ax.get_xticks()) == [-3, -2, 0]
        assert list(lines[look["ste"].light].get_ydata()) == pytest.approx([97, 96, 50])
        ys = lines[look["ewgs"].light].get_ydata()
        assert (ys[0], math.isnan(ys[1]), ys[2]) == (pytest.approx(90), True, pytest.approx(60))
        level = lines[look["float"].light]
        assert list(level.get_ydata()) == pytest.approx([97, 97])
        start, end = ax.get_xlim()
        assert min(level.get_xdata()) < start < -3 < 0 < end < max(level.get_xdata())
    assert "http" not in svg(figure, "name")
    assert bits_alt(results).startswith("Two line charts of test accuracy at 8, 4 and 1 bits for ste, ewgs")


def test_a_figure_of_nothing_but_nan(cells):
    results = cells({"ste": {8: math.nan, 4: math.nan}}, float_=None)
    assert png(bits_figure(results)).startswith(b"\x89PNG")


def test_the_report_of_several_widths(tmp_path, several_of, write_results):
    results = several_of(bits=(4, 2), seeds=2, epochs=2)
    out = write_results(tmp_path, results)
    assert load_results(out) == sorted(
        load_results(out), key=lambda run: (run["setup"] == "ewgs", results.index(find(results, run)))
    )
    write_report(out)
    text = (out / "report.md").read_text(encoding="utf-8")
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles[:4] == [
        "## Accuracy over bits",
        "## Training at 2 bits",
        "## Result and cost at 2 bits",
        "## What learns at 2 bits",
    ]
    assert titles[4:] == ["## Less memory against plain", "## Settings, seeds and versions"]
    assert "follow for one width, 2 bits: the narrowest." in text
    assert (out / "report_figures" / "bits.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 6
    assert "`" not in page


def find(results, run):
    """The given result that was read back as `run`."""
    key = (run["setup"], run["seed"], width(run))
    return next(r for r in results if (r["setup"], r["seed"], width(r)) == key)


def test_one_width_has_no_such_section(tmp_path, results, write_results):
    write_report(write_results(tmp_path, results))
    assert "bits.png" not in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert not (tmp_path / "report_figures" / "bits.png").exists()


def test_the_same_width_twice_is_refused(tmp_path, results_of, write_results):
    write_results(tmp_path / "a", results_of(seeds=1))
    (tmp_path / "a" / "ste-seed0").rename(tmp_path / "a" / "ste-w4a4-seed0")
    write_results(tmp_path / "b", results_of(seeds=1))
    (tmp_path / "b" / "ste-seed0").rename(tmp_path / "a" / "ste-seed0")
    with pytest.raises(ValueError, match="setup 'ste' with seed 0 is already in"):
        load_results(tmp_path / "a")


def test_the_terminal_shows_the_bits_in_80_columns(widths_results):
    console = Console(file=io.StringIO(), width=80)
    console.print(comparison_table(widths_results))
    lines = plain(console.file.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    cells = [line.split()[:2] for line in lines if "%" in line and "±" in line]
    names = ["zero", "ste", "checkpointed", "ewgs"]
    assert cells == [["float", "-"], *([name, bits] for bits in "84321" for name in names)]
    assert [line.split()[-1] for line in lines if "checkpointed" in line] == ["0.14"] * 5
