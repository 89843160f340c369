"""The report's files: whole, equal for equal results, and true to them."""

import base64
import re
import shutil
from html.parser import HTMLParser

import pytest

from qat.report import write_report

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
RATE = "model.learning_rate"
_VOID = {"meta", "wbr", "img"}


class Tags(HTMLParser):
    """Counts elements and fails where one is not closed in its turn."""

    def __init__(self):
        super().__init__()
        self.open, self.count, self.text = [], {}, ""

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        assert len({name for name, _ in attrs}) == len(attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def parsed(path):
    tags = Tags()
    tags.feed(path.read_text(encoding="utf-8"))
    tags.close()
    assert tags.open == []
    return tags


def titles(out):
    return re.findall("^## (.*)$", (out / "report.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def built(tmp_path_factory, results_of, write_results):
    """The report of the main comparison, to look at."""
    return write_report(write_results(tmp_path_factory.mktemp("out"), results_of()))


def test_files(built):
    out = built.parent
    assert built == out / "report.html"
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if "-seed" not in str(path))
    assert written == [
        "comparison.yaml",
        "report.html",
        "report.md",
        "report_figures",
        "report_figures/curves.svg",
        "report_figures/parameters.svg",
    ]


def test_sections(built):
    assert titles(built.parent) == [
        "Training",
        "Result and cost",
        "What learns",
        "Setups that must be equal",
        "Settings, seeds and versions",
    ]


def test_html_is_balanced_and_needs_no_network(built):
    tags = parsed(built)
    assert {tag: tags.count[tag] for tag in ("h1", "h2", "img", "table")} == {
        "h1": 1,
        "h2": 5,
        "img": 2,
        "table": 5,
    }
    text = built.read_text(encoding="utf-8")
    assert "http" not in text
    assert not re.search(r"<(script|link|iframe|svg)|@import|url\(", text)
    assert len(re.findall('<img src="data:image/svg[+]xml;base64,[^"]+" alt="[^"]+" />', text)) == 2
    svg = base64.b64decode(re.findall('base64,([^"]*)', text)[0])
    assert svg.startswith(b"<?xml")
    assert not re.search(rb"<image|@import|<script", svg)


def test_html_marks_row_headers_setups_and_zeros(built):
    text = built.read_text(encoding="utf-8")
    assert '<th scope="row"><code class="setup"><i style="background: #0072b2"></i>ste</code></th>' in text
    assert len(re.findall('<td style="text-align:right" class="zero">0</td>', text)) == 2 * 13


def test_two_builds_are_the_same_bytes(built, tmp_path, results, write_results):
    other = write_report(write_results(tmp_path, results))
    for name in ("report.html", "report.md", "report_figures/curves.svg", "report_figures/parameters.svg"):
        assert (built.parent / name).read_bytes() == (other.parent / name).read_bytes()


def test_markdown_has_its_figures_and_the_same_sentences(built):
    out = built.parent
    text = (out / "report.md").read_text(encoding="utf-8")
    figures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(figures) == 2
    assert all((out / name).read_bytes().startswith(b"<?xml") for name in figures)
    page = parsed(out / "report.html").text
    for sentence in ("13 of 14 parameters", "are equal to the last bit in all", "times the seconds of float"):
        assert sentence in text
        assert sentence in page
    assert len({line.count("|") for line in text.strip().split("\n\n")[-1].splitlines()}) == 1
    assert "\n\n\n" not in text
    assert "`" not in page


def test_an_unequal_pair_is_an_alarm(built, tmp_path, results, write_results):
    assert "<blockquote>\n<p><strong>" not in built.read_text(encoding="utf-8")
    results[-1]["difference"]["parameters"] = 1e-7
    page = write_report(write_results(tmp_path, results))
    assert page.read_text(encoding="utf-8").count("<blockquote>\n<p><strong>NOT EQUAL: ") == 1
    assert "<strong>WARNING: " in page.read_text(encoding="utf-8")
    assert "> **NOT EQUAL: " in (page.parent / "report.md").read_text(encoding="utf-8")


def test_a_sweep_has_its_figure_and_details_of_one_point(tmp_path, results_of, write_results, layer_costs):
    results = results_of(seeds=2, epochs=2, sweep={BITS: [4, 2]})
    for run in results:
        run["summary"] = layer_costs(4)
    page = write_report(write_results(tmp_path, results))
    assert titles(tmp_path) == [
        "Accuracy over bits",
        "Result and cost",
        "Training at bits 2",
        "What learns at bits 2",
        "What the layers cost at bits 2",
        "Setups that must be equal",
        "Settings, seeds and versions",
    ]
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "follow for one point of the sweep at bits 2:" in text
    assert (tmp_path / "report_figures" / "sweep.svg").read_bytes().startswith(b"<?xml")
    assert parsed(page).count["img"] == 3


@pytest.mark.parametrize("setups", [("ste",), [f"setup{n}" for n in range(10)]])
@pytest.mark.parametrize(
    "sweep", [{}, {RATE: [1e-4, 1e-2]}, {BITS: [4, 2], "model.optimizer": ["sgd", "adamw"]}]
)
def test_any_comparison_has_a_report(tmp_path, results_of, write_results, setups, sweep):
    page = write_report(write_results(tmp_path, results_of(setups, seeds=1, epochs=1, sweep=sweep)))
    assert parsed(page).count["h1"] == 1
    assert "must be equal" not in page.read_text(encoding="utf-8")


def test_sections_are_there_where_the_records_are(
    tmp_path, result_of, write_results, layer_costs, layer_health
):
    plain_run = result_of("zero", epochs=1)
    full = result_of("ste", epochs=1) | {"summary": layer_costs(4), "health": {"fc": layer_health()}}
    full["health"]["fc"]["clipped"] = [None, 0.9]
    for number, results in enumerate(([plain_run], [plain_run, full])):
        page = write_report(write_results(tmp_path / str(number), results)).read_text(encoding="utf-8")
        assert page.count("<h2>What the layers cost</h2>") == number
        assert page.count("<h2>Health of the quantizers</h2>") == number
        assert page.count('class="bad">! 90.0\u00a0%</td>') == number


def test_text_from_results_is_escaped(tmp_path, result_of, write_results):
    result = result_of("ste")
    evil = 'a|b "c" & `d` <script>y</script>'
    result["settings"]["model"] |= {"name": "<script>x</script> *b* ![i](j)", "note|d": evil}
    page = write_report(write_results(tmp_path, [result]))
    assert "script" not in parsed(page).count
    assert parsed(page).count["img"] == 2
    assert "<script>x</script> *b* ![i](j) on mnist5k" in parsed(page).text
    assert 'a|b "c" & `d` <script>y</script>' in parsed(page).text
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert markdown.startswith(r"# Comparison: \<script>x\</script> \*b\* !\[i\](j) on mnist5k")
    assert r'| `model.note\|d` | a\|b "c" \& \`d\` \<script>y\</script> |' in markdown


def test_a_broken_result_leaves_the_old_report(tmp_path, results, write_results):
    page = write_report(write_results(tmp_path, results[:4]))
    before = page.read_bytes()
    path = next(tmp_path.glob("ste-seed0-*/result.json"))
    path.write_text("{")
    with pytest.raises(ValueError, match=re.escape(str(path))):
        write_report(tmp_path)
    assert page.read_bytes() == before


def test_a_failed_write_leaves_the_old_report(tmp_path, results, write_results, monkeypatch):
    page = write_report(write_results(tmp_path, results[:4]))
    before = page.read_bytes()
    shutil.rmtree(next(tmp_path.glob("zero-seed1-*")))

    def full(self, target):
        raise OSError("no space left")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_report(tmp_path)
    assert page.read_bytes() == before
    assert not list(tmp_path.rglob(".*"))


@pytest.fixture
def say(tmp_path, write_results):
    """The Markdown about results, each run of white space as one space."""

    def text(results):
        write_report(write_results(tmp_path, results))
        return " ".join((tmp_path / "report.md").read_text(encoding="utf-8").split())

    return text


@pytest.mark.parametrize(("ste", "gap"), [([0.96, 0.97, 0.98], "within"), ([0.96, 0.96, 0.96], "beyond")])
def test_the_best_setup_and_its_gap(changed, say, ste, gap):
    results = changed(float=[0.98, 0.98, 0.98], ste=ste, checkpointed=[0.9] * 3, zero=[0.1] * 3)
    text = say(results)
    assert "**`float` had the highest test accuracy: 98.0 ± 0.0 %.** `ste` followed with" in text
    assert f"points lower, {gap} the spread of the seeds." in text


def test_one_seed_has_no_spread(results_of, say):
    text = say(results_of(seeds=1))
    assert "points lower. " in text
    assert "how much chance moves these numbers is unknown" in text


def test_the_best_point_of_a_sweep(results_of, say):
    text = say(results_of(("ste", "ewgs"), seeds=1, sweep={RATE: [0.001, 0.003]}))
    assert "had the highest test accuracy at learning\\_rate 0.003: 9" in text


def test_nothing_but_nan(result_of, say):
    result = result_of("ste", epochs=1) | {"test": {"accuracy": None, "loss": None}}
    result["epochs"][0] |= {"train_loss": None, "val_loss": None, "val_accuracy": None}
    result |= {"gradient_norm": {"fc.bias": [None, None]}, "displacement": {"fc.bias": None}}
    text = say([result])
    assert "**No setup had a finite test accuracy.** `ste` diverged in 1 of 1 runs." in text
    assert "| `fc.bias` | NaN → NaN | NaN |" in text


def test_runs_that_are_missing_are_counted(tmp_path, results, write_results):
    write_results(tmp_path, results)
    for path in tmp_path.glob("float-*/result.json"):
        path.unlink()
    write_report(tmp_path)
    assert "Runs that are not finished: 3." in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_costs_against_float(results, say):
    text = say(results)
    assert "An epoch took 1.13 to 1.47 times the seconds of float." in text
    assert "A batch kept 0.14 to 0.46 times the bytes of float." in text


def test_without_float_there_are_no_costs_against_it(results, say):
    assert "times the seconds" not in say([run for run in results if run["setup"] != "float"])


def test_the_table_of_parameters(results, say):
    text = say(results)
    assert "| parameter | `zero` gradient | `zero` moved | `ste` gradient | `ste` moved |" in text
    assert "| `blocks.0.conv.weight` | 0 | 0 | 0.0190 → 0.00256 | 0.819 |" in text


def test_each_parameter_got_a_gradient(result_of, say):
    assert "No parameter had a gradient of exactly 0 in the first and the last epoch." in say(
        [result_of("ste")]
    )


def test_the_table_of_costs(result_of, say, layer_costs):
    text = say([result_of(name) | {"summary": layer_costs(4)} for name in ("zero", "ste", "float")])
    assert "The layers of `ste`: " in text
    assert "| `fc` | QuantLinear | 4 / 32 | ste | observed / learned | 1,000 | 128,000 | 500 |" in text
    assert "| all layers | | | | | 1,000 | 128,000 | 500 |" in text
    assert "| all in float | | | | | 1,000 | 1,024,000 | 4,000 |" in text
    assert "took 12.5 % of float's weight > bytes and 12.5 % of its bit operations; > in float: `fc`." in text


def test_the_table_of_pairs(results, say):
    row = "| `checkpointed` against `ste` | 0 | 0 | 0 | 0 of 42 | 0.308 | 1.27 |"
    text = say(results)
    assert row in text
    assert (
        "`checkpointed` and `ste` are equal to the last bit in all that was recorded, over 3 runs each."
        in text
    )


def test_a_pair_that_was_not_recorded(results, say):
    for run in results:
        run.pop("difference", None)
        run["digests"] = {}
    text = say(results)
    assert "| `checkpointed` against `ste` | not recorded | not recorded | not recorded | 0 of 0 |" in text
    assert "Whether `checkpointed` and `ste` are equal was not recorded." in text


def test_swept_settings_are_not_shared(results_of, say):
    own, shared = say(results_of(("ste", "ewgs"), seeds=2, sweep={RATE: [0.001, 0.01]})).split(
        "What all runs share."
    )
    assert "| `model.learning_rate` | 0.001 / 0.01 | 0.001 / 0.01 |" in own
    assert "| `seed` | 0 / 1 | 0 / 1 |" in own
    assert "learning_rate" not in shared


@pytest.mark.parametrize("recorded", [True, False])
def test_only_a_recorded_equality_is_stated(tmp_path, results_of, write_results, recorded):
    results = results_of(setups=("zero", "ste", "checkpointed"))
    for result in results if not recorded else []:
        result.pop("difference", None)
        result["digests"] = {}
    text = write_report(write_results(tmp_path, results)).with_suffix(".md").read_text(encoding="utf-8")
    assert text.count("equals it bit for bit") == recorded
