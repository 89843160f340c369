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
        "report_figures/curves.png",
        "report_figures/layers.png",
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
    assert len(re.findall('<img alt="[^"]+" src="data:image/svg[+]xml;base64,', text)) == 2
    svg = base64.b64decode(re.findall('base64,([^"]*)', text)[0])
    assert svg.startswith(b"<?xml")
    assert not re.search(rb"<image|@import|<script", svg)


def test_html_marks_row_headers_setups_and_zeros(built):
    text = built.read_text(encoding="utf-8")
    assert '<th scope="row"><code class="setup"><i style="background: #0072b2"></i>ste</code></th>' in text
    assert len(re.findall('<td style="text-align:right" class="zero">0</td>', text)) == 2 * 13


def test_two_builds_are_the_same_bytes(built, tmp_path, results, write_results):
    other = write_report(write_results(tmp_path, results))
    for name in ("report.html", "report.md", "report_figures/curves.png", "report_figures/layers.png"):
        assert (built.parent / name).read_bytes() == (other.parent / name).read_bytes()


def test_markdown_has_its_figures_and_the_same_sentences(built):
    out = built.parent
    text = (out / "report.md").read_text(encoding="utf-8")
    figures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(figures) == 2
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in figures)
    page = parsed(out / "report.html").text
    for sentence in ("13 of 14 parameters", "are the same training to the last bit", "was first reached by"):
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
    assert "> **NOT EQUAL: " in (page.parent / "report.md").read_text(encoding="utf-8")


def test_a_sweep_has_its_figure_and_details_of_one_point(tmp_path, results_of, write_results, layer_costs):
    results = results_of(seeds=2, epochs=2, sweep={BITS: [4, 2]})
    for run in results:
        run["summary"] = layer_costs(4)
    page = write_report(write_results(tmp_path, results))
    assert titles(tmp_path) == [
        "Accuracy over bits",
        "Result and cost",
        "Training at 2 bits",
        "What learns at 2 bits",
        "What the layers cost at 2 bits",
        "Setups that must be equal",
        "Settings, seeds and versions",
    ]
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "follow for one point of the sweep at 2 bits:" in text
    assert (tmp_path / "report_figures" / "bits.png").read_bytes().startswith(b"\x89PNG")
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


def test_a_long_table_begins_folded(built, tmp_path, results_of, long_names, write_results):
    page = write_report(write_results(tmp_path, results_of(seeds=1, epochs=2, names=long_names)))
    assert re.findall('<details class="long"><summary>([0-9]+) rows', page.read_text(encoding="utf-8")) == [
        "74"
    ]
    assert "<details class" not in built.read_text(encoding="utf-8")


def test_text_from_results_is_escaped(tmp_path, result_of, write_results):
    result = result_of("ste")
    evil = 'a|b "c" & `d` <script>y</script>'
    result["settings"]["model"] |= {"name": "<script>x</script> *b* ![i](j)", "note|d": evil}
    page = write_report(write_results(tmp_path, [result]))
    assert "script" not in parsed(page).count
    assert parsed(page).count["img"] == 2
    assert "<script>x</script> *b* ![i](j) on mnist5k" in parsed(page).text
    assert 'a|b "c" & d <script>y</script>' in parsed(page).text
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert markdown.startswith(r"# Comparison: \<script>x\</script> \*b\* !\[i\](j) on mnist5k")
    assert r'| `model.note\|d` | a\|b "c" \& `d` \<script>y\</script> |' in markdown


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
