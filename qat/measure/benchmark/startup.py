"""What the first use costs: fresh processes, with an empty cache of compiled code and with a full one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from tempfile import TemporaryDirectory

import torch

from qat.measure.benchmark.steps import COMPILED, FLOAT_COMPILED, LEARNED, OURS

MODES = (OURS, LEARNED, COMPILED, FLOAT_COMPILED)
STEPS = 20
CACHES = ("cold", "warm")


@dataclass(frozen=True)
class FirstUse:
    """What one process took.

    Args:
        kernels: seconds to compile the quantizers' kernels, or to load them.
        steps: seconds of each of the first training steps.
    """

    kernels: float
    steps: list[float]

    @property
    def extra(self) -> float:
        """How much longer the first half of the steps took than as many later ones, in seconds."""
        half = len(self.steps) // 2
        return sum(self.steps[:half]) - half * median(self.steps[half:])


@dataclass
class Startup:
    """The first use in one mode, by the state of the cache: `cold`, `warm`.

    Args:
        name: of the mode.
        uses: by cache.
        error: why there are none.
    """

    name: str
    uses: dict[str, FirstUse] = field(default_factory=dict)
    error: str = ""


def measure_startup(
    model: str, batch_size: int, device: torch.device, show: Callable[[str], None]
) -> list[Startup]:
    """Train in each mode for a few steps, twice, in processes of their own.

    Args:
        model, batch_size, device: what is trained.
        show: told what is going on before each of `len(MODES) * len(CACHES)` processes.
    """
    return [_startup(mode, model, batch_size, device, show) for mode in MODES]


def _startup(
    mode: str, model: str, batch_size: int, device: torch.device, show: Callable[[str], None]
) -> Startup:
    startup = Startup(mode)
    with TemporaryDirectory(prefix="qat-startup-") as folder:
        command = [sys.executable, "-m", "qat.measure.benchmark.first_use", mode, model]
        command += [str(n) for n in (batch_size, STEPS, torch.get_num_threads(), device)]
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": folder}
        for cache in CACHES:
            show(f"{mode}, {cache} cache")
            if startup.error:
                continue
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if run.returncode:
                startup.error = (run.stderr.strip().splitlines() or ["no message"])[-1]
            else:
                startup.uses[cache] = FirstUse(**json.loads(run.stdout.splitlines()[-1]))
    return startup
