"""One call that checks a gradient and its derivative, and explains what is wrong."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from qat.gradients.check import probes
from qat.gradients.check.diagnose import explain_error
from qat.gradients.check.function_at_point import SEED, FunctionAtPoint
from qat.gradients.check.second import RefusedError, second_derivative
from qat.gradients.check.verdict import Finding, Verdict

PROBES: dict[str, probes.Probe] = {
    "upstream gradient": probes.upstream_gradient,
    "first derivative": probes.first_derivative,
    "layouts": probes.layouts,
    "saved tensors": probes.saved_tensors,
    "one at a time": probes.one_at_a_time,
    "second derivative": second_derivative,
}
MAX_ELEMENTS = 1000  # a check of so many takes some seconds


def check_gradient(
    function: Callable[..., Any] | type[torch.autograd.Function],
    *inputs: Any,
    surrogate: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Verdict:
    """Check the gradient of a function at one point, and explain what is wrong.

    It runs `gradcheck` and `gradgradcheck`, and finds what they miss or do not explain: float32 inputs, an
    ignored upstream gradient, non-contiguous and expanded memory, tensors as attributes of ctx, gradients
    that are missing if another input needs none, a backward that needs `enable_grad`, and a second derivative
    that is silently missing or wrong. A second derivative that a RuntimeError refuses is fine.

    Args:
        function: a Function class, or a callable: tensors (and other arguments) -> one tensor or several.
        inputs: of the function, not changed; a few dozen elements, away from kinks. Those that require a
            gradient are differentiated; if none does, all floating-point tensors are.
        surrogate: the stated gradient, if it is not the derivative: `surrogate(g, *inputs)` -> the gradient
            of each differentiated input. It uses torch operations, whose derivative is the stated second
            derivative, and gets one g for each output. For round_ste: `lambda g, x: g`.
        name: for the verdict; by default the function's name.

    Raises:
        ValueError: no input is a floating-point tensor, or there are over 1000 elements and no surrogate.
    """
    call: Callable[..., Any] = function
    if isinstance(function, type) and issubclass(function, torch.autograd.Function):
        call = function.apply
    f, converted = _at_point(call, inputs, surrogate)
    with torch.enable_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        torch.default_generator.manual_seed(SEED)  # gradcheck draws from it
        warnings.simplefilter("ignore")  # the causes of autograd's warnings are findings here
        findings = (*converted, *_findings(f))
    name = name or getattr(function, "__name__", None) or repr(function)
    against = "finite differences" if surrogate is None else "the stated surrogate"
    return Verdict(name, against, findings)


def _at_point(
    function: Callable[..., Any], inputs: tuple[Any, ...], surrogate: Callable[..., Any] | None
) -> tuple[FunctionAtPoint, list[Finding]]:
    floating = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.is_floating_point()]
    if not floating:
        raise ValueError("check_gradient needs an input that is a floating-point tensor, got none")
    wrt = [i for i in floating if inputs[i].requires_grad] or floating
    count = sum(inputs[i].numel() for i in wrt)
    if surrogate is None and count > MAX_ELEMENTS:
        rule = f"finite differences take every element in turn: at most {MAX_ELEMENTS}"
        raise ValueError(f"{rule}, got {count}; use smaller inputs")
    coarse = "too coarse for differences: converted to float64"
    narrow = [i for i in floating if inputs[i].dtype != torch.float64]
    notes = [Finding("inputs", "note", f"input {i} is {inputs[i].dtype}, {coarse}") for i in narrow]
    wide = tuple(x.detach().double().contiguous() if i in floating else x for i, x in enumerate(inputs))
    return FunctionAtPoint(function, wide, tuple(wrt), surrogate), notes


def _findings(f: FunctionAtPoint) -> Iterator[Finding]:
    try:
        ys = f.outputs(f.leaves())
    except Exception as error:  # any error of a user's function is a finding
        yield Finding("forward", "failed", explain_error(error))
        return
    if not ys or any(y.dtype != torch.float64 for y in ys):
        dtypes = ", ".join(str(y.dtype) for y in ys) or "no floating-point tensor"
        yield Finding("forward", "failed", f"returns {dtypes} for float64 inputs: keep the input's dtype")
        return
    yield Finding("forward", "ok")
    if f.surrogate is None and not any(y.requires_grad for y in ys):
        text = "the output has no graph: forward left torch, detached it, or is not a Function"
        yield Finding("first derivative", "failed", text)
        return
    failed: set[str] = set()
    for check, probe in PROBES.items():
        if check == "first derivative" and "upstream gradient" in failed:
            yield Finding(check, "skipped", "mend the upstream gradient first")
            continue
        found = _run(check, probe, f)
        yield from found
        failed |= {finding.check for finding in found if finding.status == "failed"}
        if "backward" in failed:
            return  # nothing else can run
    if not failed and f.surrogate is None:
        # A second opinion.
        yield from _run("gradcheck", partial(_torch_check, torch.autograd.gradcheck), f)
        if found[-1].status == "ok":
            yield from _run("gradgradcheck", partial(_torch_check, torch.autograd.gradgradcheck), f)


def _run(check: str, probe: probes.Probe, f: FunctionAtPoint) -> list[Finding]:
    try:
        found = [Finding(check, "failed", text) for text in probe(f)]
    except RefusedError as refusal:
        return [Finding(check, "refused", str(refusal))]
    except Exception as error:  # any error of a user's function is a finding
        where = "backward" if check == "upstream gradient" else check
        return [Finding(where, "failed", explain_error(error))]
    return found or [Finding(check, "ok")]


def _torch_check(check: Callable[..., bool], f: FunctionAtPoint) -> Iterator[str]:
    check(lambda *arguments: f.outputs(arguments), tuple(f.leaves()))
    return iter(())
