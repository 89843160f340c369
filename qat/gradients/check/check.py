"""One call that checks a gradient, first and second, and says what is wrong with it."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from qat.gradients.check import probes
from qat.gradients.check.case import SEED, Case
from qat.gradients.check.diagnose import explain_error
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
MOST = 1000  # elements; a check of so many takes some seconds


def check_gradient(
    function: Callable[..., Any] | type[torch.autograd.Function],
    *inputs: Any,
    surrogate: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Verdict:
    """Check the gradient of a function at one point, and explain what is wrong.

    Beside `gradcheck` and `gradgradcheck` it looks for what they miss or do not explain: float32 inputs, an
    upstream gradient that is ignored, non-contiguous and expanded memory, tensors hung on ctx, gradients that
    are missing where another input needs none, a backward without `enable_grad`, and a second derivative
    that is missing or wrong in silence. A second derivative that a RuntimeError refuses is fine.

    Args:
        function: a Function class, or a callable: tensors (and other arguments) -> a tensor or several.
        inputs: of the function; a few dozen elements, away from kinks. Those that require a gradient are
            differentiated; if none does, all floating-point ones. They are left as they are.
        surrogate: the claim, where the gradient is not the derivative: `surrogate(g, *inputs)` -> the
            gradient of each differentiated input, by torch operations (their derivative is the second one
            claimed). For round_ste: `lambda g, x: g`. One g for each output.
        name: for the verdict; default: the function's own.

    Returns:
        `Verdict`: `ok`, `faults`, and one line for each finding when printed.

    Raises:
        ValueError: no input is a floating-point tensor, or they have over 1000 elements and no surrogate.
    """
    call: Callable[..., Any] = function
    if isinstance(function, type) and issubclass(function, torch.autograd.Function):
        call = function.apply
    case, converted = _case(call, inputs, surrogate)
    with torch.enable_grad(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        torch.default_generator.manual_seed(SEED)  # gradcheck draws from it
        warnings.simplefilter("ignore")  # autograd's hints are findings here
        findings = (*converted, *_findings(case))
    return Verdict(name or _name(function), surrogate is not None, findings)


def _case(
    function: Callable[..., Any], inputs: tuple[Any, ...], surrogate: Callable[..., Any] | None
) -> tuple[Case, list[Finding]]:
    floating = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.is_floating_point()]
    if not floating:
        raise ValueError("check_gradient needs an input that is a floating-point tensor, got none")
    wrt = [i for i in floating if inputs[i].requires_grad] or floating
    count = sum(inputs[i].numel() for i in wrt)
    if surrogate is None and count > MOST:
        raise ValueError(
            f"finite differences take every element in turn: at most {MOST}, got {count}; use smaller inputs"
        )
    coarse = [i for i in floating if inputs[i].dtype != torch.float64]
    notes = [
        Finding("inputs", "note", f"input {i} is {inputs[i].dtype}, too coarse for differences: made float64")
        for i in coarse
    ]
    wide = tuple(x.detach().double().contiguous() if i in floating else x for i, x in enumerate(inputs))
    return Case(function, wide, tuple(wrt), surrogate), notes


def _findings(case: Case) -> Iterator[Finding]:
    try:
        ys = case.outputs(case.leaves())
    except Exception as error:  # whatever a user's function raises is a finding
        yield Finding("forward", "failed", explain_error(error))
        return
    if not ys or any(y.dtype != torch.float64 for y in ys):
        dtypes = ", ".join(str(y.dtype) for y in ys) or "no floating-point tensor"
        yield Finding("forward", "failed", f"returns {dtypes} for float64 inputs: keep the input's dtype")
        return
    yield Finding("forward", "ok")
    if case.surrogate is None and not any(y.requires_grad for y in ys):
        text = "the output has no graph: forward left torch, detached it, or is no Function"
        yield Finding("first derivative", "failed", text)
        return
    failed: set[str] = set()
    for check, probe in PROBES.items():
        if check == "first derivative" and "upstream gradient" in failed:
            yield Finding(check, "skipped", "first the upstream gradient")
            continue
        found = _run(check, probe, case)
        yield from found
        failed |= {finding.check for finding in found if finding.outcome == "failed"}
        if "backward" in failed:
            return  # it does not even run
    if not failed and case.surrogate is None:
        yield from _official(case, found[-1].outcome)


def _run(check: str, probe: probes.Probe, case: Case) -> list[Finding]:
    try:
        found = [Finding(check, "failed", text) for text in probe(case)]
    except RefusedError as refusal:
        return [Finding(check, "refused", str(refusal))]
    except Exception as error:  # whatever a user's function raises is a finding
        where = "backward" if check == "upstream gradient" else check
        return [Finding(where, "failed", explain_error(error))]
    return found or [Finding(check, "ok")]


def _official(case: Case, second: str) -> Iterator[Finding]:
    """torch's own checks, as a second opinion."""

    def function(*arguments: Any) -> tuple[Tensor, ...]:
        return case.outputs(arguments)

    checks: dict[str, Callable[..., bool]] = {"gradcheck": torch.autograd.gradcheck}
    if second == "ok":
        checks["gradgradcheck"] = torch.autograd.gradgradcheck
    for name, check in checks.items():
        try:
            check(function, tuple(case.leaves()))
        except Exception as error:  # GradcheckError, or what the function raises
            yield Finding(name, "failed", explain_error(error))
        else:
            yield Finding(name, "ok")


def _name(function: Any) -> str:
    return getattr(function, "__name__", None) or repr(function)
