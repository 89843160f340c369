"""The graph that autograd built, with the values that ran forward and the gradients that ran back.

Nodes and arrows are read from `grad_fn.next_functions`, gradients by hooks on these nodes while the backward
runs: what is drawn is what autograd did.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node as GradFn

from qat.tour.differences import central_differences, close
from qat.tour.graph import Arrow, Graph, Kind, Node, merge_rows
from qat.tour.text import short


def trace(
    output: Tensor,
    gradient: Tensor | None = None,
    *,
    caption: str = "",
    check: Callable[..., Tensor] | None = None,
    differs: str = "",
    **tensors: Tensor,
) -> Graph:
    """Run the backward from `output` and describe the graph that it ran through.

    Args:
        output: where the backward starts, any shape.
        gradient: to start with; ones by default.
        caption: for the drawing.
        check: the same function from the leaves (by keyword) to the output, for central differences.
        differs: why gradient and central differences are not equal, where that is meant.
        tensors: leaves and intermediate values by the names they get in the drawing.
    """
    seed = torch.ones_like(output) if gradient is None else gradient
    recorder = _Recorder(output.grad_fn, tensors)
    error = recorder.run(output, seed)
    nodes, arrows = recorder.boxes(output, seed)
    agree = None
    if check is not None:
        leaves = {name: x for name, x in tensors.items() if x.is_leaf and x.requires_grad}
        found = central_differences(check, leaves, seed.double())
        right = {name: close(x.grad, found[name]) for name, x in leaves.items()}
        nodes = [
            replace(node, differences=short(found[node.name]), agree=right[node.name])
            if node.name in found and node.kind in ("input", "cut")
            else node
            for node in nodes
        ]
        agree = all(right.values())
    nodes, arrows = merge_rows(nodes, arrows)
    return Graph(tuple(nodes), tuple(arrows), caption, differs, error, agree)


class _Recorder:
    def __init__(self, start: GradFn | None, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self.functions: list[GradFn] = []
        self.into: dict[int, tuple[Any, ...]] = {}  # gradients that a node sent on, by its place
        self.reached: set[int] = set()
        if start is not None:
            self._walk(start)
        by_grad_fn = {id(x.grad_fn): name for name, x in tensors.items() if x.grad_fn is not None}
        by_leaf = {id(x): name for name, x in tensors.items()}
        self.names = [
            by_leaf.get(id(f.variable), "") if hasattr(f, "variable") else by_grad_fn.get(id(f), "")
            for f in self.functions
        ]
        # Now, not after the backward: an experiment may have changed them by then.
        self.values = {name: short(x) for name, x in tensors.items()}

    def _walk(self, function: GradFn) -> None:
        if function in self.functions:
            return
        for before, _ in function.next_functions:
            if before is not None:
                self._walk(before)
        self.functions.append(function)  # inputs first

    def run(self, output: Tensor, seed: Tensor) -> str:
        handles = []
        for place, function in enumerate(self.functions):
            handles.append(function.register_prehook(lambda _, place=place: self.reached.add(place)))
            handles.append(function.register_hook(lambda sent, _, place=place: self._note(place, sent)))
        try:
            output.backward(seed)
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}"
        finally:
            for handle in handles:
                handle.remove()
        return ""

    def _note(self, place: int, sent: tuple[Any, ...]) -> None:
        self.into[place] = tuple(None if g is None else short(g) for g in sent)

    def boxes(self, output: Tensor, seed: Tensor) -> tuple[list[Node], list[Arrow]]:
        nodes = [self._box(place) for place in range(len(self.functions))]
        arrows: dict[tuple[int, int], Arrow] = {}
        for place, function in enumerate(self.functions):
            sent = self.into.get(place, ())
            for n, (before, _) in enumerate(function.next_functions):
                if before is None:
                    continue
                source = self.functions.index(before)
                gradient = (sent[n] if n < len(sent) else None) or ""
                earlier = arrows.get((source, place))
                if earlier:  # x * x: one arrow for both
                    gradient = (
                        f"2 x {gradient}"
                        if earlier.gradient == gradient
                        else f"{earlier.gradient} + {gradient}"
                    )
                arrows[source, place] = Arrow(source, place, self._label(source), gradient)
        cut = [name for name in self.tensors if name not in self.names and self.tensors[name] is not output]
        nodes += [Node(name, "cut", self.values[name]) for name in cut]
        nodes.append(Node("out", "output"))
        if self.functions:
            last = len(self.functions) - 1
            arrows[last, len(nodes) - 1] = Arrow(last, len(nodes) - 1, short(output), short(seed))
        else:
            nodes[-1] = Node("out", "output", short(output))
        return nodes, list(arrows.values())

    def _label(self, place: int) -> str:
        name = self.names[place]
        return f"{name} = {self.values[name]}" if name else ""

    def _box(self, place: int) -> Node:
        function = self.functions[place]
        if hasattr(function, "variable"):
            return Node(self.names[place] or "leaf", "input")
        kind: Kind = "custom" if isinstance(function, BackwardCFunction) else "operation"
        stopped = place in self.reached and place not in self.into
        return Node(type(function).__name__, kind, stopped=stopped)
