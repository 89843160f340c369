"""A graph to be drawn: boxes, and arrows that carry a value forward and a gradient back."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["input", "cut", "operation", "custom", "output"]


@dataclass(frozen=True)
class Node:
    """A box: a leaf tensor, an operation of the graph, or the value that was differentiated.

    Args:
        name: of the tensor, or of the `grad_fn`.
        kind: `cut` is a tensor that the backward cannot reach.
        value: of a leaf that has no arrow.
        count: of equal operations in a row that the box stands for.
        differences: at an input, the gradient by central differences.
        agree: whether they equal the gradient that autograd gave.
        stopped: the backward raised its error here.
    """

    name: str
    kind: Kind
    value: str = ""
    count: int = 1
    differences: str = ""
    agree: bool = True
    stopped: bool = False


@dataclass(frozen=True)
class Arrow:
    """From node to node: the value that ran forward, and the gradient that came back."""

    source: int
    target: int
    value: str
    gradient: str


@dataclass(frozen=True)
class Graph:
    """Args:
    nodes: inputs, operations, and the output last.
    arrows: in the direction of the forward.
    caption: what it is the graph of.
    differs: why its gradients are not the finite differences; empty where they must agree.
    error: of the backward, or empty.
    leaves_agree: whether all gradients equal the finite differences; None: not compared.
    """

    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    caption: str
    differs: str
    error: str
    leaves_agree: bool | None


def merge_rows(nodes: list[Node], arrows: list[Arrow]) -> tuple[list[Node], list[Arrow]]:
    """Equal operations in a row, with unnamed values between them, become one box."""
    nodes, arrows = list(nodes), list(arrows)
    n = 0
    while n < len(arrows):
        a = arrows[n]
        one, other = nodes[a.source], nodes[a.target]
        alone = sum(b.source == a.source for b in arrows) == 1 == sum(b.target == a.target for b in arrows)
        if not (alone and not a.value and one.kind == "operation" and one.name == other.name):
            n += 1
            continue
        nodes[a.target] = Node(one.name, one.kind, count=one.count + other.count)
        del arrows[n]
        arrows = [
            Arrow(b.source, a.target, b.value, b.gradient) if b.target == a.source else b for b in arrows
        ]
        nodes[a.source] = Node("", "operation", count=0)  # gone; taken out below
        n = 0
    kept = [place for place, node in enumerate(nodes) if node.count]
    places = {old: new for new, old in enumerate(kept)}
    return [nodes[old] for old in kept], [
        Arrow(places[a.source], places[a.target], a.value, a.gradient) for a in arrows
    ]
