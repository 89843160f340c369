"""Drawn graphs carry their values, and nothing in them overlaps."""

import re
from itertools import combinations

import pytest

from qat.tour import CHAPTERS, run_tour
from qat.tour.drawing import DrawnItem, draw
from qat.tour.graph import GraphArrow, GraphNode, TracedGraph

PHONE = 390 - 2 * 16  # px of a phone's screen between the margins


@pytest.fixture(scope="module")
def graphs() -> list[TracedGraph]:
    return [graph for _, finished in run_tour(CHAPTERS) for graph in finished.graphs]


def edges(item: DrawnItem) -> tuple[float, float, float, float]:
    return item.x - item.width / 2, item.y, item.x + item.width / 2, item.y + item.height


def test_each_drawing_carries_its_values(graphs: list[TracedGraph]) -> None:
    for graph in graphs:
        texts = [text for item in draw(graph).items for text, _ in item.texts]
        for arrow in graph.arrows:
            assert {arrow.value, arrow.gradient} - {""} <= set(texts)
        assert sum("differences" in text for text in texts) == sum(bool(n.differences) for n in graph.nodes)


def test_items_lie_apart_and_inside(graphs: list[TracedGraph]) -> None:
    for graph in graphs:
        drawing = draw(graph)
        assert sum(bool(item.box) for item in drawing.items) == len(graph.nodes)
        for item in drawing.items:
            x0, y0, x1, y1 = edges(item)
            assert 0 <= x0 < x1 <= drawing.width
            assert 0 <= y0 <= y1 <= drawing.height
        for a, b in combinations(map(edges, drawing.items), 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], graph
        assert drawing.width <= PHONE * 1.3, "scaled down a little it can still be read"


def test_the_forward_runs_down_and_gradients_have_an_arrow_of_their_own(graphs: list[TracedGraph]) -> None:
    for graph in graphs:
        drawing = draw(graph)
        boxes = {item.texts[0][0]: item for item in drawing.items if item.box}
        assert max(boxes.values(), key=lambda item: item.y).texts[0][0].startswith("out")
        kinds = [kind for kind, _ in drawing.lines]
        assert kinds.count("forward") + kinds.count("broken") == len(graph.arrows)
        assert kinds.count("backward") == sum(bool(arrow.gradient) for arrow in graph.arrows)


def test_a_long_arrow_passes_beside_the_boxes() -> None:
    nodes = [GraphNode(name, "operation") for name in ("x", "A", "B", "out")]
    arrows = [GraphArrow(0, 1, "x"), GraphArrow(1, 2), GraphArrow(0, 2, "x"), GraphArrow(2, 3)]
    drawing = draw(TracedGraph(nodes, arrows))
    (a,) = (item for item in drawing.items if item.texts[:1] == [("A", "name")])
    x0, y0, x1, y1 = edges(a)
    _, path = drawing.lines[2]
    points = [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)(?= [MVC]|$)", path)]
    at_a = [x for x, y in points if y0 <= y <= y1]
    assert at_a
    assert not any(x0 <= x <= x1 for x in at_a)
