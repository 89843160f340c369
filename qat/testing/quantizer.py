"""The contract of a quantizer."""

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from qat.gradients.check import Finding, Verdict, check_gradient
from qat.memory import Checkpointed, packed_activations
from qat.quantizers import Quantizer
from qat.quantizers.scale import shown
from qat.testing.contract import SEED, changed, odd_batches, run_checks, same, sample, state

# What the package asks of a quantizer beyond its forward, and what does without.
PARTS = {
    "codes": "the summary, packing and export see no integers",
    "observe": "a quantized activation cannot share its statistics",
    "freeze": "its scale cannot be frozen",
}


def check_quantizer(
    quantizer: nn.Module, x: Tensor | None = None, gradient: Callable[[Tensor, Tensor], Any] | None = None
) -> Verdict:
    """Check a quantizer: values, gradients, state, copies, checkpointed blocks and packing.

    A quantizer returns a tensor of the shape, dtype and memory format of its input. Its state is float32 (and
    counters), in parameters and buffers that have their final shape from construction. It changes in training
    mode only, in place and once in each forward; while it is frozen nothing moves. Under autocast it gives
    the same values. If it is a `Quantizer`, its values are `(codes - zero_point) * scale`, with int32 codes
    on its grid and scales > 0.

    Example, a file `my_parts.py`:

        from qat.quantizers import IntGrid, ObservedScale, Quantizer
        from qat.testing import check_quantizer

        class Bounded(Quantizer):  # clips its input at 2 before it observes and quantizes it
            def observe(self, x, relu=False):
                super().observe(x.clamp(-2, 2), relu)

        verdict = check_quantizer(Bounded(IntGrid(4), ObservedScale(7, "ema")))
        print(verdict)

    Args:
        quantizer: as constructed; it is not changed.
        x: a sample of what it will quantize; by default normal values in 4 channels, `(4, 6, 5, 5)`.
        gradient: the stated gradient in eval mode, `gradient(g, x)`, in torch operations; None: not checked.

    Returns:
        What was found, in one line for each check; `ok` is true if nothing failed.
    """
    if not isinstance(quantizer, nn.Module):
        raise ValueError(f"quantizer must be a module, got {shown(quantizer)}; construct it first")
    if x is None:
        x = sample(getattr(getattr(quantizer, "grid", None), "low", -1) < 0)
    checks = {
        "copies": _copies,
        "values": _values,
        "dtypes": _dtypes,
        "state": _state,
        "state_dict": _state_dict,
        "freezing": _freezing,
        "gradients": _gradients,
        "odd batches": _odd_batches,
        "checkpointed": _checkpointed,
        "packed": _packed,
    }
    found = run_checks({name: partial(check, quantizer, x) for name, check in checks.items()})
    for part, lost in PARTS.items():
        if not hasattr(quantizer, part):
            found.append(Finding(part, "note", f"it has no `{part}`: {lost}"))
    if not any(finding.status == "failed" for finding in found) and not _is_packed(quantizer, x):
        why = "packed_activations does not know that they lie on a grid"
        found.append(Finding("packed", "note", f"its values stay floats: {why}"))
    if gradient is not None:
        evaluated = _fresh(quantizer).eval()
        few = x[:, :2, :2, :2].double() if x.dim() == 4 else x.flatten()[:16].double()
        found += check_gradient(evaluated, few, surrogate=gradient).findings
    return Verdict(type(quantizer).__name__, "the contract of a quantizer", tuple(found))


def _fresh(quantizer: nn.Module) -> Any:
    return copy.deepcopy(quantizer).train()


def _observed(quantizer: nn.Module, x: Tensor) -> Any:
    """A copy that has seen one batch, in eval mode."""
    fresh = _fresh(quantizer)
    fresh(x)
    return fresh.eval()


def _copies(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    one = _observed(quantizer, x)
    twins = {"deepcopy": copy.deepcopy(one)}
    try:
        twins["pickle"] = pickle.loads(pickle.dumps(one))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        yield f"it cannot be pickled ({error}): define its functions and classes at the top of a module"
    for name, twin in twins.items():
        if not same(one(x), twin(x)):
            yield f"a {name} gives other values"


def _values(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    y = _fresh(quantizer)(x.clone())
    if not isinstance(y, Tensor) or y.shape != x.shape:
        got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        yield f"it returns {got} for {tuple(x.shape)}"
    if not isinstance(quantizer, Quantizer):
        return
    one, grid = _observed(quantizer, x), quantizer.grid
    y, codes, scale = one(x), one.codes(x), one.scale(x)
    zero_point = one.scale.zero_point(scale)
    if codes.dtype != torch.int32 or codes.min() < grid.low or codes.max() > grid.high:
        got = f"{codes.dtype} in {codes.min()}..{codes.max()}"
        yield f"codes must be int32 in {grid.low}..{grid.high}; got {got}"
    elif ((codes - grid.low) % grid.step != 0).any():
        yield f"codes must be {grid.low}, {grid.low + grid.step}, ..., {grid.high}; others occur"
    if not (scale > 0).all():
        yield f"the scale must be > 0; got {scale.min().item():g}"
    if not same(y, (codes - (0 if zero_point is None else zero_point)) * scale):
        yield "the values are not (codes - zero_point) * scale"


def _dtypes(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    last = x.dim() == 4
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        one = _observed(quantizer, x).to(dtype)
        given = x.to(dtype).contiguous(memory_format=torch.channels_last) if last else x.to(dtype)
        y = one(given)
        if y.dtype != dtype:
            yield f"it returns {y.dtype} for {dtype}"
        if last and not y.is_contiguous(memory_format=torch.channels_last):
            yield "the memory format channels_last is lost"
        if kinds := {t.dtype for t in state(one).values() if t.is_floating_point()} - {torch.float32}:
            yield f"its state becomes {kinds.pop()} in a model of {dtype}; it must stay torch.float32"

    one = _observed(quantizer, x)
    plain = one(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        if not same(one(x), plain):
            yield "under autocast it gives another dtype or other values: compute in the dtype of x"
    with torch.no_grad():
        if not same(one(x), plain):
            yield "under torch.no_grad() it gives other values"


def _freezing(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    one = _observed(quantizer, x).train()
    if not hasattr(one, "freeze"):
        return
    moving = copy.deepcopy(one)
    torch.manual_seed(SEED)
    moving(3 * x)
    one.freeze()
    before = state(one)
    leaf = (3 * x).requires_grad_()
    one(leaf).sum().backward()
    if moved := changed(before, state(one)):
        yield f"{', '.join(moved)}: moves while it is frozen"
    if learned := [name for name, p in one.named_parameters() if p.grad is not None]:
        yield f"{', '.join(learned)}: gets a gradient while it is frozen"
    one.unfreeze()
    torch.manual_seed(SEED)
    one(3 * x)
    if moved := changed(state(moving), state(one)):
        yield f"{', '.join(moved)}: does not move again after unfreeze"


def _state(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    one = _observed(quantizer, x)
    before = state(one)
    one(2 * x)
    if moved := changed(before, state(one)):
        yield f"{', '.join(moved)}: moved in eval mode"
    training = _fresh(quantizer)
    storages = {name: t.data_ptr() for name, t in training.named_buffers()}
    training(x)
    if moved := [name for name, t in training.named_buffers() if t.data_ptr() != storages.get(name)]:
        yield f"{', '.join(moved)}: replaced by a training forward; change it in place"
    if hasattr(one, "codes"):
        before = state(one.train())
        one.codes(2 * x)
        if moved := changed(before, state(one)):
            yield f"{', '.join(moved)}: moved by `codes`"
    if hasattr(one, "observe"):
        forward, observed = copy.deepcopy(one).train(), copy.deepcopy(one).train()
        forward(2 * x)
        observed.observe(2 * x)
        if moved := changed(state(forward), state(observed)):
            yield f"{', '.join(moved)}: a training forward moves more than one `observe`"
    fresh = state(quantizer)
    for name, value in state(one).items():
        if name not in fresh or value.shape != fresh[name].shape:
            yield f"{name}: has its shape only after the first batch, so that strict loading fails"
    for name, buffer in one.train().named_buffers():
        if buffer.requires_grad:
            yield f"{name}: a buffer that records a graph: decorate `observe` with torch.no_grad()"


def _state_dict(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    old, new = _observed(quantizer, x), _fresh(quantizer).eval()
    wanted = {name: p.requires_grad for name, p in new.named_parameters()}
    new.load_state_dict(old.state_dict())
    if not same(old(x), new(x)):
        yield "a loaded state gives other values: some state is in no parameter or buffer"
    if wanted != {name: p.requires_grad for name, p in new.named_parameters()}:
        yield "loading a state changes requires_grad"


def _gradients(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    one = _fresh(quantizer)
    for step in range(2):  # the second fails if the state of the first has kept its graph
        leaf = (x * (step + 1)).requires_grad_()
        one(leaf).square().sum().backward()
        if leaf.grad is None or not leaf.grad.isfinite().all():
            yield "the input gets no gradient" if leaf.grad is None else "the input's gradient is not finite"
        for name, parameter in one.named_parameters():
            if parameter.requires_grad and (parameter.grad is None or not parameter.grad.isfinite().all()):
                yield f"{name}: no gradient, or one that is not finite"


def _odd_batches(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    for name, batch in odd_batches(x).items():
        one = _fresh(quantizer)
        y = one(batch)
        if y.shape != batch.shape:
            yield f"{name}: the shape is not kept"
        if not all(value.isfinite().all() for value in state(one).values()):
            yield f"{name}: the state is not finite after it"
        if name == "a batch of zeros" and not y.isfinite().all():
            yield f"{name}: the values are not finite"


class _Block(nn.Module):
    """A weight, the quantizer, and a function that saves the values for its backward."""

    def __init__(self, quantizer: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones_like(x))
        self.quantizer = _fresh(quantizer)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.quantizer(self.weight * x)
        return y * y


def _checkpointed(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    blocks = [_Block(quantizer, x), Checkpointed(_Block(quantizer, x))]
    for block in blocks:
        torch.manual_seed(0)
        for step in range(2):
            block(x * (step + 1)).sum().backward()
    yield from _unequal(blocks[0], blocks[1], "a checkpointed block")


def _packed(quantizer: nn.Module, x: Tensor) -> Iterator[str]:
    blocks = [_Block(quantizer, x), _Block(quantizer, x)]
    torch.manual_seed(0)
    blocks[0](x).sum().backward()
    torch.manual_seed(0)
    with packed_activations():
        blocks[1](x).sum().backward()
    yield from _unequal(blocks[0], blocks[1], "packing")


def _is_packed(quantizer: nn.Module, x: Tensor) -> bool:
    """Whether packing keeps codes of the values, and no float for each element."""
    kept: list[Tensor] = []

    def keep(saved: Tensor) -> Tensor:
        kept.append(saved)
        return saved

    with saved_tensors_hooks(keep, lambda saved: saved), packed_activations():
        quantized = _fresh(quantizer)(x.clone().requires_grad_())
        kept.clear()  # what the quantizer itself needs
        quantized * quantized
    return not any(t.is_floating_point() and t.numel() == x.numel() for t in kept)


def _unequal(plain: nn.Module, other: nn.Module, what: str) -> Iterator[str]:
    if moved := changed(state(plain), state(other)):
        yield f"{what} leaves another state: {', '.join(moved)}"
    for (name, a), b in zip(plain.named_parameters(), other.parameters(), strict=True):
        if a.grad is not None and (b.grad is None or not same(a.grad, b.grad)):
            yield f"{what} gives another gradient of {name}"
