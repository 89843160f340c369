"""The graph of one backward as data: nodes, and arrows that carry a value forward and a gradient back."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphNode:
    """A leaf tensor, an operation, or the output where the backward starts."""

    name: str  # of the tensor, or of the class of its `grad_fn`
    kind: str  # input, detached (not on the graph), operation, custom or output
    count: int = 1  # of equal operations in a row that this node stands for
    differences: str = ""  # the gradient of an input by central differences
    agrees: bool = True  # whether they equal the gradient that autograd computed
    raises: bool = False  # whether the backward raised its error here


@dataclass(frozen=True)
class GraphArrow:
    """From one node to another, by index: the value that ran forward, and the gradient that came back."""

    source: int
    target: int
    value: str = ""
    gradient: str = ""
    broken: bool = False  # autograd recorded no graph here


@dataclass(frozen=True)
class TracedGraph:
    """A graph after its backward has run."""

    nodes: list[GraphNode]  # inputs and operations; the output comes last
    arrows: list[GraphArrow]  # in the direction of the forward
    caption: str = ""
    differs: str = ""  # why the gradients do not equal central differences; empty where they must
    error: str = ""  # that the backward raised
    leaves_agree: bool | None = None  # whether all gradients equal central differences; None: not compared
