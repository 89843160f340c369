"""Where everything of a drawn graph lies, in px; `page.html` makes it into inline SVG.

The forward runs down, in layers. Boxes, the labels of arrows, and the places where long arrows pass a layer
are all items of a layer, so nothing overlaps.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import fmean

from qat.tour.graph import GraphArrow, GraphNode, TracedGraph

CHARACTER = 7.25  # width of a character of the 12 px monospaced font
LINE = 16  # height of a line of text
PADDING = 6  # between a box and its text
GAP = 22  # between layers
MARGIN = 8
APART = 18  # between the items of a layer
PAIR = 3.5  # half the distance between the arrow forward and the arrow back
SWEEPS = 20  # over all layers, to straighten the arrows
PORT = 18  # distance between arrows at one box


@dataclass(eq=False)
class DrawnItem:
    """A box (with CSS classes), the label of an arrow, or a place where an arrow passes."""

    texts: list[tuple[str, str]]  # lines, each with its CSS class
    box: str = ""
    x: float = 0  # the middle
    y: float = 0  # the upper edge
    floor: float = 0  # the lower edge of the layer
    above: list["DrawnItem"] = field(default_factory=list)
    below: list["DrawnItem"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.texts = [line for line in self.texts if line[0]]
        padding = 2 * PADDING if self.box else 0
        self.width = max([20, *(len(text) * CHARACTER + padding for text, _ in self.texts)])
        self.height = LINE * len(self.texts) + padding

    def port(self, neighbours: list["DrawnItem"], other: "DrawnItem") -> float:
        """Where the arrow from or to another item touches this one: not all arrows in one point."""
        place = sorted(neighbours, key=lambda item: item.x).index(other) - (len(neighbours) - 1) / 2
        return self.x + place * min(PORT, self.width / len(neighbours))


@dataclass(frozen=True)
class GraphDrawing:
    """The boxes and labels, and each line as CSS class and SVG path."""

    width: float
    height: float
    items: list[DrawnItem]
    lines: list[tuple[str, str]]


def draw(graph: TracedGraph) -> GraphDrawing:
    """Lay out a graph."""
    boxes, depths = [_box(node) for node in graph.nodes], _depths(graph)
    layers: list[list[DrawnItem]] = [[] for _ in range(2 * max(depths) + 1)]  # that of the output first
    for box, depth in zip(boxes, depths, strict=True):
        layers[2 * depth].append(box)
    chains = []
    for arrow in graph.arrows:
        between = layers[2 * depths[arrow.source] - 1 : 2 * depths[arrow.target] : -1]
        items = [_label(arrow), *(DrawnItem([]) for _ in between[1:])]
        for layer, item in zip(between, items, strict=True):
            layer.append(item)
        chains.append([boxes[arrow.source], *items, boxes[arrow.target]])
        for one, other in pairwise(chains[-1]):
            one.below.append(other)
            other.above.append(one)
    for items in layers:  # from the output up, each item near what it leads to
        wanted = {item: fmean([other.x for other in item.below] or [0]) for item in items}
        items.sort(key=wanted.__getitem__)  # arrows into one box stay in the order of its arguments
        _place(items, wanted)
    for items in [*reversed(layers), *layers] * SWEEPS:  # then between all that it is connected to
        _place(items, {item: fmean(o.x for o in item.above + item.below or [item]) for item in items})
    everything = [item for items in layers for item in items]
    left = min(item.x - item.width / 2 for item in everything) - MARGIN
    height = float(MARGIN)
    for items in reversed(layers):
        floor = height + max(item.height for item in items)
        for item in items:
            item.x, item.y, item.floor = item.x - left, height, floor
        height = floor + GAP
    width = max(item.x + item.width / 2 for item in everything) + MARGIN
    lines = []
    for arrow, chain in zip(graph.arrows, chains, strict=True):
        if arrow.gradient:
            lines.append(("backward", _path(chain, PAIR)))
        kind = "broken" if arrow.broken else "forward"
        lines.append((kind, _path(chain, -PAIR if arrow.gradient else 0)))
    return GraphDrawing(width, height - GAP + MARGIN, everything, lines)


def _box(node: GraphNode) -> DrawnItem:
    name = f"{node.name} \N{MULTIPLICATION SIGN} {node.count}" if node.count > 1 else node.name
    tag = {"custom": "custom backward", "detached": "not on the graph"}.get(node.kind, "")
    texts = [(name, "name"), ("raises the error" if node.raises else tag, "tag")]
    if node.differences:
        sign, kind = ("=", "agrees") if node.agrees else ("\N{NOT EQUAL TO}", "differs")
        texts.append((f"{sign} differences {node.differences}", kind))
    return DrawnItem(texts, node.kind + " raises" * node.raises)


def _label(arrow: GraphArrow) -> DrawnItem:
    cross = "\N{BALLOT X}" * arrow.broken
    return DrawnItem([(cross, "cross"), (arrow.value, "value"), (arrow.gradient, "gradient")])


def _depths(graph: TracedGraph) -> list[int]:
    """The longest way from each node to the output, in arrows; a node without arrows is at the top."""
    depths = [0] * len(graph.nodes)
    for arrow in sorted(graph.arrows, key=lambda arrow: arrow.target, reverse=True):
        depths[arrow.source] = max(depths[arrow.source], depths[arrow.target] + 1)
    return [one or max(depths) for one in depths[:-1]] + [0]


def _place(items: list[DrawnItem], wanted: dict[DrawnItem, float]) -> None:
    """Put the items of a layer side by side, in their order, as near to the wanted places as they can be."""
    right = -inf
    for item in items:
        item.x = max(wanted[item], right + APART + item.width / 2)
        right = item.x + item.width / 2
    shift = fmean(wanted[item] - item.x for item in items)
    for item in items:
        item.x += shift


def _path(chain: list[DrawnItem], shift: float) -> str:
    """One arrow, `shift` px to the right, with a break at its label."""
    path = ""
    for one, other in pairwise(chain):
        x, end = one.port(one.below, other) + shift, other.port(other.above, one) + shift
        half, start = one.floor + GAP / 2, one.y + one.height
        path += f"M{x:.1f} {start:.1f} " + (f"V{one.floor:.1f} " if start < one.floor else "")
        path += f"C{x:.1f} {half:.1f} {end:.1f} {half:.1f} {end:.1f} {other.y:.1f} "
    return path.strip()
