"""Checks of the first derivative, and of the rules that a Function must follow."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from qat.gradients.check.diagnose import explain_difference, explain_error
from qat.gradients.check.function_at_point import SEED, FunctionAtPoint, backward, copied, random_upstream

Probe = Callable[[FunctionAtPoint], Iterator[str]]
EXACT = 1e-9


def first_derivative(f: FunctionAtPoint) -> Iterator[str]:
    """The gradient equals the true one, for a random upstream gradient."""
    gs = random_upstream(f.outputs(f.arguments))
    pairs = zip(f.wrt, f.true_gradients(gs), f.gradients(f.leaves(), gs), strict=True)
    for position, true, got in pairs:
        difference = explain_difference(true, got, f.tolerance, f.source)
        if difference:
            yield f"input {position}: {difference}"


def upstream_gradient(f: FunctionAtPoint) -> Iterator[str]:
    """The gradient is right for other upstream gradients, too: 0, three times the first, and a random one."""
    gs = random_upstream(f.outputs(f.arguments))
    variants = [gs, [0 * g for g in gs], [3 * g for g in gs], random_upstream(gs, seed=SEED + 1)]
    found = [f.gradients(f.leaves(), gs) for gs in variants]
    for number, position in enumerate(f.wrt):
        once, zero, triple, _ = (gradients[number] for gradients in found)
        if once.any() and torch.equal(once, zero) and torch.equal(once, triple):
            yield f"input {position}: the upstream gradient is ignored (same result for g, 0 and 3 g)"
        elif f.surrogate is not None:
            pairs = zip((f.true_gradients(gs)[number] for gs in variants), found, strict=True)
            first, *others = (explain_difference(true, got[number], EXACT, "stated") for true, got in pairs)
            text = next(filter(None, others), None)
            if text and not first:  # otherwise the check of the first derivative says so
                yield f"input {position}, at 0, 3 times or another upstream gradient: {text}"
        elif zero.nan_to_num().any():
            yield f"input {position}: an upstream gradient of 0 gives a gradient that is not 0"
        elif not _same(triple, 3 * once):
            yield f"input {position}: 3 times the upstream gradient does not give 3 times the gradient"


def layouts(f: FunctionAtPoint) -> Iterator[str]:
    """Strided, transposed or expanded inputs and upstream gradients change nothing."""
    ys = f.outputs(f.arguments)
    repeats = all(map(torch.equal, ys, f.outputs(f.arguments, seed=SEED + 1)))
    for layout, change in (("non-contiguous", _strided), ("expanded", _expanded)):
        odd = [change(x) if isinstance(x, Tensor) else x for x in f.arguments]
        odd_gs = [change(g) for g in random_upstream(ys)]
        even, even_gs = ([copied(x) for x in xs] for xs in (odd, odd_gs))
        try:
            results = [_run(f, xs, gs) for xs, gs in ((even, even_gs), (odd, odd_gs), (even, odd_gs))]
        except Exception as error:  # any error of a user's function is a finding
            yield f"{layout}: {explain_error(error)}"
            continue
        # A random function, which draws other numbers for an element in another layout, only has to run.
        for other in results[1:] if repeats else ():
            if not all(map(_same, results[0], other)):
                yield f"{layout} inputs or upstream gradients give another result: strides are ignored"
                break


def saved_tensors(f: FunctionAtPoint) -> Iterator[str]:
    """No tensor is an attribute of ctx, and the backward notices a change in place after the forward."""
    for name in sorted(_tensors_on_ctx(f.outputs(f.leaves()))):
        yield f"ctx.{name} holds a tensor: autograd does not watch it; use ctx.save_for_backward"
    gs = random_upstream(f.outputs(f.arguments))
    right = f.gradients(f.leaves(), gs)
    for position, argument in enumerate(f.arguments):
        if isinstance(argument, Tensor) and argument.is_floating_point():
            got = _after_a_change(f, position, gs)
            if got is not None and not all(map(_same, right, got)):
                change = "changed in place after the forward, changes the gradient without an error"
                yield f"input {position}, {change}: it is not kept by ctx.save_for_backward"


def one_at_a_time(f: FunctionAtPoint) -> Iterator[str]:
    """The gradient of an input is the same if the other inputs need none."""
    gs = random_upstream(f.outputs(f.arguments))
    together = f.gradients(f.leaves(), gs)
    for position, expected in zip(f.wrt, together, strict=True):
        alone = FunctionAtPoint(f.function, f.arguments, (position,), None)
        if not _same(alone.gradients(alone.leaves(), gs)[0], expected):
            yield f"input {position}: another gradient if the other inputs need none"


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=EXACT, equal_nan=True)


def _run(f: FunctionAtPoint, arguments: Sequence[Any], gs: Sequence[Tensor]) -> list[Tensor]:
    leaves = [x.detach() if isinstance(x, Tensor) else x for x in arguments]
    for x in f.differentiated(leaves):
        x.requires_grad_()
    ys = f.outputs(leaves)
    return [y.detach() for y in ys] + backward(ys, f.differentiated(leaves), gs)


def _after_a_change(f: FunctionAtPoint, position: int, gs: Sequence[Tensor]) -> list[Tensor] | None:
    leaves = f.leaves()
    inner = [x * 1 if isinstance(x, Tensor) and x.requires_grad else x for x in leaves]
    ys = f.outputs(inner)
    try:
        with torch.no_grad():
            inner[position].mul_(-3).add_(1)
        return backward(ys, f.differentiated(leaves), gs)
    except RuntimeError:  # autograd's version check, as it should be
        return None


def _tensors_on_ctx(ys: Sequence[Tensor]) -> set[str]:
    nodes, seen, found = [y.grad_fn for y in ys], set(), set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [after for after, _ in node.next_functions]
        # Only nodes of Python Functions have a __dict__, with the attributes of ctx.
        found |= {name for name, value in getattr(node, "__dict__", {}).items() if _holds_tensors(value)}
    return found


def _holds_tensors(value: Any) -> bool:
    values = list(value.values()) if isinstance(value, dict) else value
    parts = values if isinstance(values, (list, tuple)) else [values]
    return any(isinstance(part, Tensor) for part in parts)


def _strided(x: Tensor) -> Tensor:
    """The same values with gaps in memory, and transposed if there are two dimensions or more."""
    if x.dim() == 0:
        return copied(x)
    turned = x.detach().transpose(0, -1)
    return torch.stack([turned, turned + 1], -1)[..., 0].transpose(0, -1)


def _expanded(x: Tensor) -> Tensor:
    return x.detach()[:1].expand_as(x) if x.dim() and x.numel() else copied(x)
