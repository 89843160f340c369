"""Where everything of a drawing lies, in px: along the forward and across it, whichever way it runs."""

from itertools import pairwise

from qat.tour.graph import Graph, Node
from qat.tour.layout import Way, layout

CHAR = 7.25  # width of a character of the 12 px monospaced font
SMALL = 5.4  # and of the 10.5 px font
BOX = 30  # height of a box
LANE = 96  # across, from lane to lane, where the forward runs to the right
MARGIN = 8
DIFFERENCES = 30  # height of the two lines on the finite differences

Stop = tuple[int, int]  # layer, and place in it


class Geometry:
    """The measures of one drawing.

    Args:
        graph: what is drawn.
        narrow: the forward runs down; else to the right.

    Attributes:
        start, end: along, of each layer.
        bend: along, what an arrow needs to change its lane.
    """

    def __init__(self, graph: Graph, narrow: bool) -> None:
        self.graph, self.narrow = graph, narrow
        self.bend = 29 if narrow else 36
        plan = layout(graph)
        self.layers, self.ways = plan.layers, plan.ways
        self._lanes = [self._lanes_of(items) for items in self.layers]
        self.start, self.end = self._stack()
        self.length = self.end[-1] + MARGIN
        ends = [
            self._lanes[n][place] + side * self._cross(index) / 2
            for n, items in enumerate(self.layers)
            for place, index in enumerate(items)
            for side in (-1, 1)
        ]
        self._low = min(ends) - MARGIN
        self.breadth = max(ends) + MARGIN - self._low

    def size(self) -> tuple[float, float]:
        """Width and height."""
        return self.xy(self.length, self._low + self.breadth)

    def xy(self, along: float, across: float) -> tuple[float, float]:
        """On the page."""
        return (across - self._low, along) if self.narrow else (along, across - self._low)

    def node(self, stop: Stop) -> Node | None:
        """What stands there, if an arrow does not just pass."""
        index = self.layers[stop[0]][stop[1]]
        return None if index is None else self.graph.nodes[index]

    def tag(self, index: int) -> str:
        """The small text at a node; where boxes stand side by side, the frame alone must say "by hand"."""
        node = self.graph.nodes[index]
        crowded = self.narrow and any(len(items) > 1 and index in items for items in self.layers)
        return "" if crowded and node.kind == "custom" and not node.stopped else tag(node)

    def lane(self, stop: Stop) -> float:
        """Where it lies, across."""
        return self._lanes[stop[0]][stop[1]]

    def edges(self, stop: Stop) -> tuple[float, float]:
        """Where, along, a box begins and ends, or a layer that an arrow passes."""
        start, end = self.start[stop[0]], self.end[stop[0]]
        node = self.node(stop)
        if node is None:
            return start, end
        if self.narrow:
            return end - BOX, end
        middle, half = (start + end) / 2, width(node) / 2
        return middle - half, middle + half

    def fans(self, way: Way) -> bool:
        """Whether several arrows leave where this one does; it then changes lanes first, not last."""
        return sum(other.stops[0] == way.stops[0] for other in self.ways) > 1

    def port(self, way: Way, end: int) -> float:
        """Where on the side of its box an arrow begins (end 0) or ends (-1): not all in one point."""
        beside = 1 if end == 0 else -2
        same = [other for other in self.ways if other.stops[end] == way.stops[end]]
        same.sort(key=lambda other: self.lane(other.stops[beside]))
        step = 18 if self.narrow else min(14, 22 / max(len(same) - 1, 1))
        return (same.index(way) - (len(same) - 1) / 2) * step

    def meets(self, way: Way) -> bool:
        """Whether an arrow from another box arrives where this one does."""
        return any(other.stops[-1] == way.stops[-1] and other.stops[0] != way.stops[0] for other in self.ways)

    def turns(self, one: Stop, other: Stop) -> bool:
        """Whether an arrow changes lanes from one stop to the next."""
        return abs(self.lane(one) - self.lane(other)) > 1

    def turning(self, layer: int) -> bool:
        """Whether any arrow changes lanes after a layer."""
        steps = (step for way in self.ways for step in pairwise(way.stops))
        return any(one[0] == layer and self.turns(one, other) for one, other in steps)

    def _lanes_of(self, items: tuple[int | None, ...]) -> list[float]:
        if not self.narrow:
            return [(place - (len(items) - 1) / 2) * LANE for place in range(len(items))]
        sizes = [self._cross(index) + 8 for index in items]
        return [sum(sizes[:place]) + (size - sum(sizes)) / 2 for place, size in enumerate(sizes)]

    def _stack(self) -> tuple[list[float], list[float]]:
        start, end, along = [], [], float(MARGIN)
        for n, items in enumerate(self.layers):
            nodes = [self.graph.nodes[index] for index in items if index is not None]
            start.append(along)
            along += max(map(self._along, nodes), default=0)
            end.append(along)
            leaving = [way for way in self.ways if way.stops[0][0] == n]
            gap = 60 if self.narrow else max([20, *map(label_width, leaving)]) + 26
            along += gap + self.bend * self.turning(n)
        return start, end

    def _along(self, node: Node) -> float:
        if self.narrow:
            return BOX + (DIFFERENCES if node.differences else 0)
        return max(width(node), _differences_width(node), tag_width(node))

    def _cross(self, index: int | None) -> float:
        """What an item takes across, symmetrically about its lane."""
        if index is None:
            return 44 if self.narrow else BOX
        node = self.graph.nodes[index]
        if not self.narrow:
            return BOX + 2 * (DIFFERENCES * bool(node.differences) + 14 * bool(tag(node)))
        labels = [
            label_width(way) for way in self.ways if self.layers[way.stops[0][0]][way.stops[0][1]] == index
        ]
        beside = 2 * tag_width(node) if self.tag(index) else 0  # both sides: the box is in the middle
        return max(width(node) + beside, _differences_width(node), *labels, 0)


def name(node: Node) -> str:
    """The text in the box."""
    text = f"{node.name} = {node.value}" if node.value else node.name
    return f"{text} \N{MULTIPLICATION SIGN} {node.count}" if node.count > 1 else text


def tag(node: Node) -> str:
    """The small text beside the box."""
    if node.stopped:
        return "raises here"
    return {"custom": "by hand", "cut": "not on the graph"}.get(node.kind, "")


def width(node: Node) -> float:
    """Of the box."""
    return max(len(name(node)) * CHAR + 18, BOX + 6)


def tag_width(node: Node) -> float:
    """Of the small text, with its distance from the box."""
    return len(tag(node)) * SMALL + 6 if tag(node) else 0


def label_width(way: Way) -> float:
    """Of the value and the gradient on an arrow."""
    return max(len(way.arrow.value), len(way.arrow.gradient)) * CHAR


def _differences_width(node: Node) -> float:
    return max(len(node.differences) * CHAR, 80) if node.differences else 0
