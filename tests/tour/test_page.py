"""The tour's page: whole, self-contained, with the graph of each experiment."""

import re
from html.parser import HTMLParser

import pytest

from qat.tour import CHAPTERS, html_page, run_tour
from qat.tour.experiment import Chapter, Experiment, Finished, Measured

EMPTY = {"meta"}


class Tags(HTMLParser):
    """Counts elements and fails where one is not closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        assert len({name for name, _ in attrs}) == len(attrs)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def results() -> list[tuple[Chapter, Finished]]:
    return list(run_tour(CHAPTERS))


@pytest.fixture(scope="module")
def page(results: list[tuple[Chapter, Finished]]) -> str:
    return html_page(results)


def test_page_is_balanced_and_has_every_experiment(
    page: str, results: list[tuple[Chapter, Finished]]
) -> None:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    flat = [result for _, result in results]
    graphs = sum(len(result.graphs) for result in flat)
    assert (tags.count["section"], tags.count["h3"]) == (len(flat), len(flat))
    assert (tags.count["figure"], tags.count["svg"]) == (graphs, graphs + 1)
    assert tags.count["h2"] == len(CHAPTERS)
    ids = re.findall(r' id="(experiment[^"]*)"', page)
    assert ids == [f"experiment-{n}" for n in range(1, len(flat) + 1)]
    assert re.findall(r'href="#([^"]*)"', page) == ids
    assert f"{len(flat)} of {len(flat)} as expected" in page


def test_page_needs_no_network(page: str) -> None:
    assert "http" not in page
    assert not re.search(r"<(script|link|img|iframe)|@import|url\((?!#)", page)


def test_a_cross_shows_in_the_page() -> None:
    def measure() -> Measured:
        return {}, []

    subject = Experiment(measure, "A <planted> one", "Why & how.", {"value": 1.0})
    result = run_tour([Chapter("Planted", [subject])])
    page = html_page(result)
    assert "0 of 1 as expected" in page
    assert "A &lt;planted&gt; one" in page
    assert "\N{BALLOT X}" in page
