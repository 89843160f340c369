"""Draw random numbers without moving torch's generators, which this thread and others use."""

from typing import Any

import torch
from torch import Generator

from qat.torch_private import TorchDispatchMode, tensors_in


class PrivateRandom(TorchDispatchMode):
    """Inside it, random functions draw what they would draw anyway, but from copies of torch's generators.

    To save the state of the global generators and restore it would repeat numbers that other threads drew.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generators: dict[torch.device, Generator] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        device = torch.device(kwargs.get("device") or next((x.device for x in tensors_in(args)), "cpu"))
        if (seeded := _with_generator(func)) is not None and device.type in ("cpu", "cuda"):
            return seeded(*args, **kwargs, generator=self._generator(device))
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            return func(*args, **kwargs)

    def _generator(self, device: torch.device) -> Generator:
        if device not in self._generators:
            state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
            self._generators[device] = Generator(device).set_state(state)
        return self._generators[device]


def _with_generator(func: Any) -> Any:
    """The overload of a function that has the same arguments and a generator; None: there is none."""
    overloads = (getattr(func.overloadpacket, name) for name in func.overloadpacket.overloads())
    fitting = (f for f in overloads if _arguments(f) == _arguments(func) and "generator" in str(f._schema))
    return next(fitting, None)


def _arguments(func: Any) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in func._schema.arguments if a.name != "generator"]
