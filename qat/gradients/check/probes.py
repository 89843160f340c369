"""Checks of the first derivative and of the rules that a Function obeys."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from qat.gradients.check.case import SEED, Case, backward, upstream
from qat.gradients.check.diagnose import explain_difference, explain_error

Probe = Callable[[Case], Iterator[str]]
EXACT = 1e-9


def first_derivative(case: Case) -> Iterator[str]:
    """Against the truth, for a random upstream gradient."""
    gs = upstream(case.outputs(case.arguments))
    pairs = zip(case.wrt, case.truth(gs), case.gradients(case.leaves(), gs), strict=True)
    for position, true, got in pairs:
        difference = explain_difference(true, got, case.tolerance, case.source)
        if difference:
            yield f"input {position}: {difference}"


def upstream_gradient(case: Case) -> Iterator[str]:
    """0, 3 times, and another upstream gradient."""
    gs = upstream(case.outputs(case.arguments))
    variants = [gs, [0 * g for g in gs], [3 * g for g in gs], upstream(gs, seed=SEED + 1)]
    found = [case.gradients(case.leaves(), gs) for gs in variants]
    for number, position in enumerate(case.wrt):
        plain, zero, triple, _ = (gradients[number] for gradients in found)
        if plain.any() and torch.equal(plain, zero) and torch.equal(plain, triple):
            yield f"input {position}: the upstream gradient is ignored (same result for g, 0 and 3 g)"
        elif case.surrogate is not None:
            pairs = zip((case.truth(gs)[number] for gs in variants), found, strict=True)
            first, *others = (explain_difference(true, got[number], EXACT, "stated") for true, got in pairs)
            text = next(filter(None, others), None)
            if text and not first:  # else the first derivative tells
                yield f"input {position}, at 0, 3 times or another upstream gradient: {text}"
        elif zero.nan_to_num().any():
            yield f"input {position}: an upstream gradient of 0 gives a gradient that is not 0"
        elif not _same(triple, 3 * plain):
            yield f"input {position}: 3 times the upstream gradient does not give 3 times the gradient"


def layouts(case: Case) -> Iterator[str]:
    """Inputs and upstream gradients that are strided, transposed or expanded."""
    ys = case.outputs(case.arguments)
    repeats = all(map(torch.equal, ys, case.outputs(case.arguments, seed=SEED + 1)))
    for layout, change in (("non-contiguous", _strided), ("expanded", _expanded)):
        odd = [change(x) if isinstance(x, Tensor) else x for x in case.arguments]
        odd_gs = [change(g) for g in upstream(ys)]
        even, even_gs = ([_copy(x) for x in xs] for xs in (odd, odd_gs))
        try:
            results = [_run(case, xs, gs) for xs, gs in ((even, even_gs), (odd, odd_gs), (even, odd_gs))]
        except Exception as error:  # whatever a user's function raises is a finding
            yield f"{layout}: {explain_error(error)}"
            continue
        # Noise falls on other places in another layout: then that it runs is all there is to see.
        for other in results[1:] if repeats else ():
            if not all(map(_same, results[0], other)):
                yield f"{layout} inputs or upstream gradients give another result: memory is read as it lies"
                break


def saved_tensors(case: Case) -> Iterator[str]:
    """Nothing hangs on ctx, and a change in place after the forward is noticed by the backward."""
    for name in sorted(_hung_on_ctx(case.outputs(case.leaves()))):
        yield f"ctx.{name} holds a tensor: autograd does not watch it; use ctx.save_for_backward"
    gs = upstream(case.outputs(case.arguments))
    right = case.gradients(case.leaves(), gs)
    for position, argument in enumerate(case.arguments):
        if isinstance(argument, Tensor) and argument.is_floating_point():
            got = _after_a_change(case, position, gs)
            if got is not None and not all(map(_same, right, got)):
                yield (
                    f"input {position}, changed in place after the forward, changes the gradient without an "
                    "error: it is kept elsewhere than in ctx.save_for_backward"
                )


def one_at_a_time(case: Case) -> Iterator[str]:
    """Each input's gradient where the others need none."""
    gs = upstream(case.outputs(case.arguments))
    together = case.gradients(case.leaves(), gs)
    for position, expected in zip(case.wrt, together, strict=True):
        alone = Case(case.function, case.arguments, (position,), None)
        if not _same(alone.gradients(alone.leaves(), gs)[0], expected):
            yield f"input {position}: another gradient where the other inputs need none"


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=EXACT, equal_nan=True)


def _run(case: Case, arguments: Sequence[Any], gs: Sequence[Tensor]) -> list[Tensor]:
    leaves = [x.detach() if isinstance(x, Tensor) else x for x in arguments]
    for position in case.wrt:
        leaves[position].requires_grad_()
    ys = case.outputs(leaves)
    return [y.detach() for y in ys] + backward(ys, [leaves[position] for position in case.wrt], gs)


def _after_a_change(case: Case, position: int, gs: Sequence[Tensor]) -> list[Tensor] | None:
    leaves = case.leaves()
    inner = [x * 1 if isinstance(x, Tensor) and x.requires_grad else x for x in leaves]
    ys = case.outputs(inner)
    try:
        with torch.no_grad():
            inner[position].mul_(-3).add_(1)
        return backward(ys, [leaves[i] for i in case.wrt], gs)
    except RuntimeError:  # autograd's version check: what should happen
        return None


def _hung_on_ctx(ys: Sequence[Tensor]) -> set[str]:
    nodes, seen, found = [y.grad_fn for y in ys], set(), set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [after for after, _ in node.next_functions]
        # Only nodes made from Python have a __dict__ with what was hung on ctx.
        found |= {name for name, value in getattr(node, "__dict__", {}).items() if _holds_tensors(value)}
    return found


def _holds_tensors(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, (dict, list, tuple)):
        return any(isinstance(part, Tensor) for part in parts)
    return isinstance(value, Tensor)


def _strided(x: Tensor) -> Tensor:
    """The same values, with others between them in memory; from two dimensions up also transposed."""
    if x.dim() == 0:
        return x.detach().clone()
    turned = x.detach().transpose(0, -1)
    return torch.stack([turned, turned + 1], -1)[..., 0].transpose(0, -1)


def _expanded(x: Tensor) -> Tensor:
    return x.detach()[:1].expand_as(x) if x.dim() and x.numel() else x.detach().clone()


def _copy(x: Any) -> Any:
    return x.clone(memory_format=torch.contiguous_format) if isinstance(x, Tensor) else x
