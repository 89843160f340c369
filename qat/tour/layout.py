"""Where the boxes and arrows of a graph go: layers along the forward, lanes across.

Positions have two coordinates: `along` (in the direction of the forward) and `across`. Drawn wide, along runs
to the right; drawn narrow, down.
"""

from dataclasses import dataclass
from itertools import pairwise

from qat.tour.graph import Arrow, Graph


@dataclass(frozen=True)
class Way:
    """An arrow's way: the layer and lane of its source, of the layers that it passes, and of its target.

    Args:
        arrow: what it carries.
        stops: `(layer, place in that layer)`, from source to target.
    """

    arrow: Arrow
    stops: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Layout:
    """Args:
    layers: of each layer, its items in order: a node's index, or None where an arrow passes.
    ways: of the arrows.
    """

    layers: tuple[tuple[int | None, ...], ...]
    ways: tuple[Way, ...]


Item = tuple[str, int]  # ("node", index), or (f"arrow{n}", layer) where arrow n passes


def layout(graph: Graph) -> Layout:
    """Layers by the longest way from an input, inputs moved next to their first reader; few crossings."""
    depth = _depths(graph)
    chains: list[list[Item]] = []
    for n, arrow in enumerate(graph.arrows):
        passed = [(f"arrow{n}", layer) for layer in range(depth[arrow.source] + 1, depth[arrow.target])]
        chains.append([("node", arrow.source), *passed, ("node", arrow.target)])
    readers: dict[Item, list[tuple[Item, int]]] = {}
    for n, chain in enumerate(chains):
        for item, after in pairwise(chain):
            readers.setdefault(item, []).append((after, n))
    layers: list[list[Item]] = [[] for _ in range(max(depth) + 1)]
    for node, layer in enumerate(depth):
        layers[layer].append(("node", node))
    for chain in chains:
        for item in chain[1:-1]:
            layers[item[1]].append(item)
    # From the output back, each item beside what reads it; where that is one box, in the order of arguments.
    place: dict[Item, float] = {}
    for items in reversed(layers):
        items.sort(key=lambda item: _near(item, readers, place))
        for n, item in enumerate(items):
            place[item] = n - (len(items) - 1) / 2
    where = {item: (layer, n) for layer, items in enumerate(layers) for n, item in enumerate(items)}
    return Layout(
        tuple(tuple(i if kind == "node" else None for kind, i in items) for items in layers),
        tuple(
            Way(arrow, tuple(where[item] for item in chain))
            for arrow, chain in zip(graph.arrows, chains, strict=True)
        ),
    )


def _near(
    item: Item, readers: dict[Item, list[tuple[Item, int]]], place: dict[Item, float]
) -> tuple[float, float]:
    after = readers.get(item, [])
    if not after:
        return (99.0, item[1])
    return (
        sum(place[reader] for reader, _ in after) / len(after),
        sum(argument for _, argument in after) / len(after),
    )


def _depths(graph: Graph) -> list[int]:
    depth = [0] * len(graph.nodes)
    for _ in graph.nodes:  # as often as the longest way may be
        for arrow in graph.arrows:
            depth[arrow.target] = max(depth[arrow.target], depth[arrow.source] + 1)
    for n, node in enumerate(graph.nodes):
        if node.kind == "input":
            depth[n] = min((depth[a.target] for a in graph.arrows if a.source == n), default=1) - 1
    if not graph.arrows:  # nothing is connected: in the order in which they were computed
        return list(range(len(graph.nodes)))
    return depth
