"""The report's files: whole, equal for equal results, and true to them."""

import re
import shutil
from html.parser import HTMLParser

import pytest

from qat.report.write import write_report

_EMPTY = {"meta", "wbr"}


class Tags(HTMLParser):
    """Counts elements and fails where one is not closed in its turn."""

    def __init__(self):
        super().__init__()
        self.open, self.count, self.text = [], {}, ""

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        assert len({name for name, _ in attrs}) == len(attrs)
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1

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


@pytest.fixture(scope="module")
def built(tmp_path_factory, results_of, write_results):
    """The usual report, to look at."""
    return write_report(write_results(tmp_path_factory.mktemp("out"), results_of()))


def test_files(built):
    out = built.parent
    assert built == out / "report.html"
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.name != "result.json")
    assert [name for name in written if "-seed" not in name] == [
        "report.html",
        "report.md",
        "report_figures",
        "report_figures/curves.png",
        "report_figures/layers.png",
    ]


def test_html_is_balanced_and_needs_no_network(built):
    tags = parsed(built)
    assert {tag: tags.count[tag] for tag in ("h1", "h2", "figure", "svg", "table")} == {
        "h1": 1,
        "h2": 5,
        "figure": 2,
        "svg": 4,
        "table": 5,
    }
    text = built.read_text(encoding="utf-8")
    assert "http" not in text
    assert not re.search(r"<(script|link|img|iframe)|@import|url\((?!#)", text)
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    assert text.count('role="img" aria-label="') == 4


def test_two_builds_are_the_same_bytes(built, tmp_path, results, write_results):
    other = write_report(write_results(tmp_path, list(reversed(results))))
    for name in ("report.html", "report.md", "report_figures/curves.png", "report_figures/layers.png"):
        assert (built.parent / name).read_bytes() == (other.parent / name).read_bytes()


def test_markdown_has_its_figures_and_the_same_sentences(built):
    out = built.parent
    text = (out / "report.md").read_text(encoding="utf-8")
    figures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(figures) == 2
    assert all((out / name).read_bytes().startswith(b"\x89PNG") for name in figures)
    page = parsed(out / "report.html").text
    for sentence in ("13 of 14 parameters", "are the same training to the last bit", "is first reached by"):
        assert sentence in text
        assert sentence in page
    widths = {line.count("|") for line in text.split("\n\n")[-2].splitlines()}
    assert len(widths) == 1


def test_an_unequal_pair_is_an_alarm(built, tmp_path, results, write_results):
    assert 'class="alarm"' not in built.read_text(encoding="utf-8")
    results[-1]["difference"]["parameters"] = 1e-7
    page = write_report(write_results(tmp_path, results))
    assert page.read_text(encoding="utf-8").count('<p class="alarm">NOT EQUAL: ') == 1
    assert "**NOT EQUAL: " in (page.parent / "report.md").read_text(encoding="utf-8")


def test_no_pair_no_section(tmp_path, results, write_results):
    page = write_report(write_results(tmp_path, results[:9]))
    assert "Less memory against plain" not in page.read_text(encoding="utf-8")


def test_a_long_table_begins_folded(tmp_path, results_of, long_names, write_results):
    page = write_report(write_results(tmp_path, results_of(seeds=1, epochs=2, names=long_names)))
    assert parsed(page).count["details"] == 1
    assert page.read_text(encoding="utf-8").count('<th scope="row"><code>layer') == 72


def test_text_from_results_is_escaped(tmp_path, result_of, write_results):
    result = result_of("ste")
    result["settings"] |= {"model": "<script>x</script>", "note|d": 'a|b "c" & `d`'}
    page = write_report(write_results(tmp_path, [result]))
    assert "script" not in parsed(page).count
    assert "<script>x</script>" in parsed(page).text
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert markdown.startswith(r"# Gradients compared: \<script>x\</script> on mnist5k")
    assert '| `note\\|d` | a\\|b "c" & `d` |' in markdown


def test_a_broken_result_leaves_the_old_report(tmp_path, results, write_results):
    page = write_report(write_results(tmp_path, results[:4]))
    before = page.read_bytes()
    path = tmp_path / "ste-seed0" / "result.json"
    path.write_text("{")
    with pytest.raises(ValueError, match=re.escape(str(path))):
        write_report(tmp_path)
    assert page.read_bytes() == before


def test_a_failed_write_leaves_the_old_report(tmp_path, results, write_results, monkeypatch):
    page = write_report(write_results(tmp_path, results[:4]))
    before = page.read_bytes()
    shutil.rmtree(tmp_path / "zero-seed1")

    def full(self, target):
        raise OSError("no space left")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_report(tmp_path)
    assert page.read_bytes() == before
    assert not list(tmp_path.rglob(".*"))
