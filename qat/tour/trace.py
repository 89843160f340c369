"""The graph that autograd built, with the values that ran forward and the gradients that ran back.

Nodes and arrows are read from `grad_fn.next_functions`. Hooks on these nodes record the gradients while the
backward runs, so the graph shows what autograd really did.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

from qat.gradients.check.function_at_point import central_differences
from qat.tour.errors import NO_ERROR, error_of
from qat.tour.experiment import Measured
from qat.tour.graph import GraphArrow, GraphNode, TracedGraph
from qat.tour.text import short


def leaf(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """A leaf tensor of these values that requires a gradient."""
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def differentiate(
    function: Callable[..., Tensor], check: Callable[..., Tensor] | None = None, **options: Any
) -> Measured:
    """Measure `y = function(*inputs)` and, after the backward of `y.sum()`, the gradient of the first input.

    Args:
        function: from the inputs to a tensor.
        check: for central differences; by default the function itself.
        options: `caption` and `differs` of `trace`; all others are inputs by their names in the drawing.
    """
    inputs = [x for x in options.values() if isinstance(x, Tensor)]
    y = function(*inputs)
    graph = trace(y.sum(), check=lambda *x: (check or function)(*x).sum(), **options, y=y)
    return {"error": graph.error} if graph.error else {"forward": y, "gradient": inputs[0].grad}, [graph]


def trace(
    output: Tensor,
    gradient: Tensor | None = None,
    *,
    caption: str = "",
    check: Callable[..., Tensor] | None = None,
    differs: str = "",
    **tensors: Tensor,
) -> TracedGraph:
    """Run the backward from `output` and describe the graph that it ran through.

    Args:
        output: where the backward starts, of any shape.
        gradient: the gradient of `output`; ones by default.
        caption: the title of the drawing.
        check: the same function, from the leaves among `tensors` to the output, for central differences.
        differs: why gradient and central differences are not equal, where they are not meant to be.
        tensors: leaves and intermediate values, by their names in the drawing.
    """
    seed = torch.ones_like(output) if gradient is None else gradient
    # Read the values now: an experiment may change the tensors later.
    values = {name: f"{name} = {short(x)}" for name, x in tensors.items()} | {"": ""}
    functions = _inputs_first(output.grad_fn, [])
    name_of = {x.grad_fn or x: name for name, x in reversed(tensors.items())}
    names = {function: name_of.get(getattr(function, "variable", function), "") for function in functions}
    error, sent = _run_backward(output, seed, functions)
    compared = _differences(check, seed, tensors) if check and not error else {}
    edges = _edges(functions, sent)
    shown_by = _merge_rows(names, edges)
    shown = [function for function in functions if shown_by[function] is function]
    nodes = []
    for function in shown:
        count, raises = [*shown_by.values()].count(function), sent.get(function, []) is None
        if hasattr(function, "variable"):
            nodes.append(GraphNode(names[function] or "leaf", "input", **compared.get(names[function], {})))
        else:
            kind = "custom" if isinstance(function, BackwardCFunction) else "operation"
            nodes.append(GraphNode(type(function).__name__, kind, count, raises=raises))
    for name, x in tensors.items():
        if name not in names.values() and x is not output:
            nodes.append(GraphNode(values[name], "detached", **compared.get(name, {})))
    arrows = [
        GraphArrow(shown.index(one), shown.index(shown_by[other]), values[names[one]], gradients)
        for (one, other), gradients in edges.items()
        if one in shown
    ]
    if functions:
        arrows.append(GraphArrow(len(shown) - 1, len(nodes), short(output), short(seed)))
    else:
        arrows = [GraphArrow(n, n + 1, broken=True) for n in range(len(nodes))]
    nodes.append(GraphNode("out" if functions else f"out = {short(output)}", "output"))
    agree = all(one["agrees"] for one in compared.values()) if compared else None
    return TracedGraph(nodes, arrows, caption, differs, error, agree)


def _inputs_first(function: Node | None, found: list[Node]) -> list[Node]:
    """All nodes of the graph that ends in `function`, each after those that it reads."""
    if function is not None and function not in found:
        for before, _ in function.next_functions:
            _inputs_first(before, found)
        found.append(function)
    return found


def _differences(
    check: Callable[..., Tensor], seed: Tensor, tensors: dict[str, Tensor]
) -> dict[str, dict[str, Any]]:
    """By name of a leaf that requires a gradient: the fields of its node."""
    leaves = {name: x for name, x in tensors.items() if x.is_leaf}
    learned = {place: name for place, (name, x) in enumerate(leaves.items()) if x.requires_grad}
    wide = [x.detach().double() for x in leaves.values()]
    with torch.no_grad():
        found = central_differences(lambda xs: (check(*xs) * seed).sum(), wide, [*learned])
    fields = {}
    for name, expected in zip(learned.values(), found, strict=True):
        gradient = leaves[name].grad
        got = torch.zeros_like(expected) if gradient is None else gradient.double()
        agrees = torch.allclose(got, expected, rtol=1e-4, atol=1e-4)  # most gradients are float32
        fields[name] = {"differences": short(expected), "agrees": agrees}
    return fields


def _run_backward(output: Tensor, seed: Tensor, functions: list[Node]) -> tuple[str, dict[Node, Any]]:
    """The error, or empty, and the gradients that each node passed on; None where it began and raised."""
    sent: dict[Node, list[str] | None] = {}

    def record(function: Node, gradients: Iterable[Tensor | None]) -> None:
        sent[function] = ["" if g is None else short(g) for g in gradients]

    handles = []
    for function in functions:
        handles.append(function.register_prehook(lambda _, f=function: sent.update({f: None})))
        handles.append(function.register_hook(lambda gradients, _, f=function: record(f, gradients)))
    error = error_of(lambda: output.backward(seed))
    for handle in handles:
        handle.remove()
    return "" if error == NO_ERROR else error, sent


def _edges(functions: list[Node], sent: dict[Node, Any]) -> dict[tuple[Node, Node], str]:
    """From node to node, in the direction of the forward: the gradients that came back, on all paths."""
    edges: dict[tuple[Node, Node], list[str]] = {}
    for function in functions:
        gradients = sent.get(function) or [""] * len(function.next_functions)
        for (before, _), text in zip(function.next_functions, gradients, strict=True):
            if before is not None:
                edges.setdefault((before, function), []).append(text)
    # x * x has two paths
    return {
        pair: f"{len(texts)} x {texts[0]}" if len(texts) > 1 == len(set(texts)) else " + ".join(texts)
        for pair, texts in edges.items()
    }


def _merge_rows(names: dict[Node, str], edges: Iterable[tuple[Node, Node]]) -> dict[Node, Node]:
    """The node that shows each node: of equal operations in a row, the last one shows all."""
    shown_by = {function: function for function in names}
    for one, other in reversed(list(edges)):
        same = type(one) is type(other) and not isinstance(one, BackwardCFunction)
        alone = sum(a is one for a, _ in edges) == 1 == sum(b is other for _, b in edges)
        if same and alone and not names[one]:
            shown_by[one] = shown_by[other]
    return shown_by
