"""What the first use costs: fresh processes with an empty and with a filled cache of compiled code."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from qat.measure.fresh_process import call_in_fresh_process
from qat.measure.modes import FLOAT_COMPILED, MODES, QAT, QAT_COMPILED, QAT_LEARNED
from qat.measure.rounds import seconds_of
from qat.measure.step import TrainStep
from qat.measure.workload import Workload
from qat.quantizers import build_kernels

STARTUP_MODES = (QAT, QAT_LEARNED, QAT_COMPILED, FLOAT_COMPILED)
STEPS = 20
CACHES = ("cold", "warm")


@dataclass(frozen=True)
class FirstUse:
    """What one process took.

    Args:
        kernels: seconds to compile the kernels of the quantizers, or to load them.
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
    """The first use in one mode.

    Args:
        name: of the mode.
        uses: what each process took, by the state of its cache: `cold` or `warm`.
        error: why there are none.
    """

    name: str
    uses: dict[str, FirstUse] = field(default_factory=dict)
    error: str = ""


def measure_startup(workload: Workload, announce: Callable[[str], None]) -> list[Startup]:
    """Train for a few steps in each of `STARTUP_MODES`, in two processes that share a cache.

    Args:
        workload: what is trained.
        announce: called before each of `len(STARTUP_MODES) * len(CACHES)` processes.
    """
    startups = []
    for name in STARTUP_MODES:
        startups.append(Startup(name))
        with TemporaryDirectory(prefix="qat-startup-") as folder:
            for cache in CACHES:
                announce(f"{name}, {cache} cache")
                try:
                    use = call_in_fresh_process(
                        first_use, asdict(workload), name, TORCHINDUCTOR_CACHE_DIR=folder
                    )
                except ChildProcessError as error:
                    startups[-1].error = str(error)
                    break
                startups[-1].uses[cache] = FirstUse(**use)
    return startups


def first_use(workload: dict[str, Any], name: str) -> dict[str, Any]:
    """Compile the kernels and train for a few steps in this process; the result is that of `FirstUse`."""
    work, mode = Workload(**workload), MODES[name]
    start = time.perf_counter()
    if mode.quantized and not mode.compiled:  # a compiled network takes the kernels into its own graph
        build_kernels(work.device)
    kernels = time.perf_counter() - start
    step = TrainStep(work.build(mode), mode).on(*work.random_batch())
    return {"kernels": kernels, "steps": [seconds_of(step.call, 1, work.device) for _ in range(STEPS)]}
