"""Run the checks of a contract one after another, and collect what they find."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from qat.gradients.check import Finding
from qat.names import one_line

SEED = 0
Check = Callable[[], Iterator[str]]  # yields one line for each fault


def run_checks(checks: Mapping[str, Check]) -> list[Finding]:
    """Run each check with the same random numbers; an exception is a fault, too."""
    found: list[Finding] = []
    for name, check in checks.items():
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            try:
                faults = list(check())
            except Exception as error:  # any error of user-defined code is a finding
                faults = [
                    one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
                ]
        found += [Finding(name, "failed", fault) for fault in faults] or [Finding(name, "ok")]
    return found


def sample(signed: bool) -> Tensor:
    """Normal values in channels of different magnitude. Shape: `(4, 6, 5, 5)`, float32."""
    x = torch.randn(4, 6, 5, 5, generator=torch.Generator().manual_seed(SEED))
    x = x * torch.linspace(0.5, 2, 4).reshape(4, 1, 1, 1)
    return x if signed else x.abs()


def odd_batches(x: Tensor) -> dict[str, Tensor]:
    """Batches of the shape of x that occur once in a while, by name."""
    first = torch.arange(x.numel()).reshape(x.shape) == 0
    return {
        "an empty batch": x[:, :0],
        "a batch of zeros": torch.zeros_like(x),
        "a batch with NaN": torch.where(first, torch.nan, x),
        "a batch with an infinity": torch.where(first, torch.inf, x),
    }


def state(module: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters and buffers, also those that are not saved."""
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """The names of entries that were added, lost or changed."""
    names = before.keys() | after.keys()
    equal = {name for name in before.keys() & after.keys() if same(before[name], after[name])}
    return sorted(names - equal)


def same(a: Tensor, b: Tensor) -> bool:
    """Equal values, shape and dtype; NaN equals NaN."""
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
