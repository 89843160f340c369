"""A graph as inline SVG: values above the arrows that run forward, gradients on those that run back."""

import html
from itertools import pairwise

from qat.tour.geometry import BOX, Geometry, Stop, label_width, name, width
from qat.tour.graph import Graph
from qat.tour.layout import Way

PAIR = 3.5  # half the distance of the two arrows of a pair
TIP = 7  # length of an arrow's head


def draw(graph: Graph, alt: str, narrow: bool) -> str:
    """The graph as one `<svg>`: to the right, or down where it must be narrow. Colours are the page's."""
    canvas = _Canvas(Geometry(graph, narrow))
    for way in canvas.geometry.ways:
        canvas.pair(way)
    if not graph.arrows:
        canvas.breaks()
    for layer, items in enumerate(canvas.geometry.layers):
        for place in range(len(items)):
            canvas.box((layer, place))
    wide, high = canvas.geometry.size()
    return (
        f'<svg viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" role="img" '
        f'aria-label="{html.escape(alt)}">{"".join(canvas.parts)}</svg>'
    )


class _Canvas:
    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.parts: list[str] = []

    def box(self, stop: Stop) -> None:
        """A node, with what stands beside it."""
        index = self.geometry.layers[stop[0]][stop[1]]
        if index is None:
            return
        node, beside = self.geometry.graph.nodes[index], self.geometry.tag(index)
        x, y = self.geometry.xy(sum(self.geometry.edges(stop)) / 2, self.geometry.lane(stop))
        size, stopped = width(node), " stopped" if node.stopped else ""
        radius = 11 if node.kind in ("input", "cut", "output") else 4
        self.parts.append(
            f'<rect class="{node.kind}{stopped}" x="{x - size / 2:.1f}" y="{y - BOX / 2:.1f}" '
            f'width="{size:.1f}" height="{BOX}" rx="{radius}"/>'
        )
        self._text(x, y + 4, name(node), "name")
        narrow = self.geometry.narrow
        if narrow:  # below the box run the arrows
            self._text(x + size / 2 + 6, y + 4, beside, f"tag beside{stopped}")
        else:
            self._text(x, y + BOX / 2 + 12, beside, f"tag{stopped}")
        if node.differences:
            kind, sign = ("agree", "=") if node.agree else ("differ", "\N{NOT EQUAL TO}")
            first = y - BOX / 2 - 20 if narrow else y + BOX / 2 + (26 if beside else 13)
            self._text(x, first, f"{sign} differences", f"tag {kind}")
            self._text(x, first + 14, node.differences, kind)

    def pair(self, way: Way) -> None:
        """The arrow forward, the arrow back if a gradient came, and what they carry."""
        back = bool(way.arrow.gradient)
        leave, arrive = self.geometry.port(way, 0), self.geometry.port(way, -1)
        self._line(way, -PAIR * back, "forward")
        if back:
            self._line(way, PAIR, "backward")
        geometry = self.geometry
        one, other = way.stops[:2]
        begin, end = geometry.edges(one)[1], geometry.edges(other)[0]
        across, on_line = geometry.lane(one) + leave, geometry.narrow
        beyond = geometry.lane(other) + (arrive if len(way.stops) == 2 else 0)
        crowded = not geometry.narrow and len(way.stops) == 2 and geometry.meets(way)
        if geometry.fans(way) and abs(across - beyond) > 1:
            begin = geometry.end[one[0]] + geometry.bend
            if crowded:
                begin, end = begin - geometry.bend, begin  # half-way: beyond is another arrow's label
                across, on_line = (across + beyond) / 2, True
            else:
                across = beyond
        elif geometry.turning(one[0]):
            end = min(end, geometry.start[other[0]] - geometry.bend)
            if crowded:  # close to its box, clear of what arrives from another lane
                end = begin + label_width(way) + 12
        self._label(way, *geometry.xy((begin + end) / 2, across), on_line)

    def _label(self, way: Way, x: float, y: float, on_line: bool) -> None:
        """Value and gradient, above and below the arrows or, cutting them, on them."""
        up, down = -10, 19
        if on_line:
            lines = bool(way.arrow.value) + bool(way.arrow.gradient)
            up, down = (-3, 12) if lines == 2 else (5, 5)
            size = label_width(way) + 6
            self.parts.append(
                f'<rect class="paper" x="{x - size / 2:.1f}" y="{y - 8 * lines:.1f}" width="{size:.1f}" '
                f'height="{16 * lines}"/>'
            )
        self._text(x, y + up, way.arrow.value, "value")
        self._text(x, y + down, way.arrow.gradient, "gradient")

    def _line(self, way: Way, shift: float, kind: str) -> None:
        geometry = self.geometry
        leave, arrive = geometry.port(way, 0) + shift, geometry.port(way, -1) + shift
        begin, end = geometry.edges(way.stops[0])[1], geometry.edges(way.stops[-1])[0]
        path = f"M{self._point(begin, geometry.lane(way.stops[0]) + leave)}"
        for n, (one, other) in enumerate(pairwise(way.stops)):
            at = geometry.lane(one) + (leave if n == 0 else shift)
            to = geometry.lane(other) + (arrive if n == len(way.stops) - 2 else shift)
            # Lanes change between the layers, clear of what stands in them.
            if n == 0 and geometry.fans(way):
                turn = geometry.end[one[0]]
            else:
                turn = geometry.start[other[0]] - geometry.bend
            half, turned = turn + geometry.bend / 2, turn + geometry.bend
            path += (
                f" L{self._point(turn, at)} C{self._point(half, at)} {self._point(half, to)} "
                f"{self._point(turned, to)} L{self._point(geometry.edges(other)[0], to)}"
            )
        self.parts.append(f'<path class="{kind}" d="{path}"/>')
        if kind == "forward":
            self._tip(end, geometry.lane(way.stops[-1]) + arrive, -TIP, kind)
        else:
            self._tip(begin, geometry.lane(way.stops[0]) + leave, TIP, kind)

    def _tip(self, along: float, across: float, length: float, kind: str) -> None:
        corners = (along, across), (along + length, across - 3.5), (along + length, across + 3.5)
        outline = " L".join(self._point(*corner) for corner in corners)
        self.parts.append(f'<path class="tip {kind}" d="M{outline} Z"/>')

    def breaks(self) -> None:
        """Where values went on, but no graph was built."""
        for n in range(len(self.geometry.layers) - 1):
            a, b = self.geometry.edges((n, 0))[1], self.geometry.edges((n + 1, 0))[0]
            self.parts.append(f'<path class="broken" d="M{self._point(a, 0)} L{self._point(b, 0)}"/>')
            x, y = self.geometry.xy((a + b) / 2, 0)
            self._text(x, y + 4, "\N{BALLOT X}", "cross")

    def _point(self, along: float, across: float) -> str:
        x, y = self.geometry.xy(along, across)
        return f"{x:.1f} {y:.1f}"

    def _text(self, x: float, y: float, text: str, kind: str) -> None:
        if text:
            self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(text)}</text>')
