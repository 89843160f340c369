"""The tour's page: whole, self-contained, with the graph of each experiment."""

import re
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest

from qat.tour import cli as tour
from qat.tour.drawing import draw
from qat.tour.experiment import Chapter, Experiment, Outcome, Result
from qat.tour.graph import Arrow, Graph, Node
from qat.tour.page import check_file, html_page, write_page

EMPTY = {"meta"}
NARROW = 390 - 2 * 16  # px that a phone leaves beside the margins
Box = tuple[float, float, float, float]


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
def results() -> list[tuple[Chapter, list[Result]]]:
    return tour.run_tour(tour.CHAPTERS)


@pytest.fixture(scope="module")
def page(results: list[tuple[Chapter, list[Result]]]) -> str:
    return html_page(results)


def test_page_is_balanced_and_has_every_experiment(
    page: str, results: list[tuple[Chapter, list[Result]]]
) -> None:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    flat = [result for _, group in results for result in group]
    graphs = sum(len(result.graphs) for result in flat)
    assert (tags.count["section"], tags.count["h3"]) == (len(flat), len(flat))
    assert (tags.count["figure"], tags.count["svg"]) == (graphs, 2 * graphs)
    assert tags.count["h2"] == len(results)
    ids = re.findall(r' id="([^"]*)"', page)
    assert ids == [f"experiment-{n}" for n in range(1, len(flat) + 1)]
    assert re.findall(r'href="#([^"]*)"', page) == ids
    assert f"{len(flat)} of {len(flat)} as expected" in page


def test_page_needs_no_network(page: str) -> None:
    assert "http" not in page
    assert not re.search(r"<(script|link|img|iframe)|@import|url\(", page)


def test_each_drawing_carries_its_values(results: list[tuple[Chapter, list[Result]]]) -> None:
    for _, group in results:
        for result in group:
            for graph in result.graphs:
                for narrow in (False, True):
                    texts = re.findall(r">([^<]+)</text>", draw(graph, "", narrow))
                    for arrow in graph.arrows:
                        assert {arrow.value, arrow.gradient} - {""} <= set(texts)
                    assert sum("differences" in text for text in texts) == sum(
                        bool(node.differences) for node in graph.nodes
                    )


def boxes(svg: str) -> list[Box]:
    found = re.findall(r'<rect class="(?!paper)[^"]*" x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"', svg)
    rows = [tuple(map(float, row)) for row in found]
    return [(x, y, x + width, y + height) for x, y, width, height in rows]


@pytest.mark.parametrize("narrow", [False, True])
def test_boxes_lie_apart_and_inside(results: list[tuple[Chapter, list[Result]]], narrow: bool) -> None:
    for _, group in results:
        for result in group:
            for graph in result.graphs:
                svg = draw(graph, "", narrow)
                frame = re.match(r'<svg viewBox="0 0 (\d+) (\d+)"', svg)
                assert frame
                wide, high = map(int, frame.groups())
                placed = boxes(svg)
                assert len(placed) == len(graph.nodes)
                for x0, y0, x1, y1 in placed:
                    assert 0 <= x0 < x1 <= wide
                    assert 0 <= y0 < y1 <= high
                for a, b in combinations(placed, 2):
                    assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (
                        result.experiment.title
                    )
                # Scaled down a little it can still be read, on a phone as on a desk.
                assert wide <= (NARROW if narrow else 912) * 1.3, result.experiment.title


def test_a_long_way_round_gets_a_lane_of_its_own() -> None:
    nodes = (Node("x", "input"), Node("A", "operation"), Node("B", "operation"), Node("out", "output"))
    arrows = (Arrow(0, 1, "x", ""), Arrow(1, 2, "", ""), Arrow(0, 2, "x", ""), Arrow(2, 3, "", ""))
    svg = draw(Graph(nodes, arrows, "", "", "", None), "", narrow=False)
    _, a, _, _ = boxes(svg)
    heights = {round(float(y)) for y in re.findall(r"L[\d.]+ ([\d.]+)", svg)}
    assert any(not a[1] - 1 <= y <= a[3] + 1 and y > a[3] for y in heights)


def test_a_cross_shows_in_the_page() -> None:
    def measure() -> Outcome:
        return Outcome({})

    subject = Experiment("A <planted> one", "Why & how.", {"value": 1.0}, measure)
    result = tour.run_tour([Chapter("Planted", (subject,))])
    page = html_page(result)
    assert "0 of 1 as expected" in page
    assert "A &lt;planted&gt; one" in page
    assert "\N{BALLOT X}" in page


@pytest.mark.parametrize(
    ("name", "why"),
    [("", "is a folder"), ("gone/tour.html", "is in no existing folder"), ("file/tour.html", "no existing")],
)
def test_a_path_that_cannot_be_written(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=why):
        check_file("html", tmp_path / name)


def test_write_replaces_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tour.html"
    path.write_text("before")
    check_file("html", path)

    def full(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="disk full"):
            write_page(path, [])
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    write_page(path, [])
    assert "0 of 0" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]
