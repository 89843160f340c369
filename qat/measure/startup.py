"""What the first use costs: fresh processes with an empty and with a filled cache of compiled code."""

import time
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from qat.measure.fresh_process import call_in_fresh_process
from qat.measure.modes import FLOAT_COMPILED, MODES, QAT, QAT_COMPILED, QAT_LEARNED
from qat.measure.rounds import seconds_of
from qat.measure.workload import Workload
from qat.quantizers import build_kernels

STARTUP_MODES = (QAT, QAT_LEARNED, QAT_COMPILED, FLOAT_COMPILED)
STEPS = 20
CACHES = ("cold", "warm")


def measure_startup(workload: Workload, announce: Callable[[str], None]) -> list[dict[str, Any]]:
    """Train for a few steps in each of `STARTUP_MODES`, in two processes that share a cache.

    `announce` is called before each process. A row holds the `name` of the mode, the `uses` by the state of
    the cache, each as `first_use` returns it, and the `error` that ended them, or an empty text.
    """
    rows: list[dict[str, Any]] = []
    for name in STARTUP_MODES:
        rows.append({"name": name, "uses": {}, "error": ""})
        with TemporaryDirectory(prefix="qat-startup-") as folder:
            environment = {"TORCHINDUCTOR_CACHE_DIR": folder}
            try:
                for cache in CACHES:
                    announce(f"{name}, {cache} cache")
                    use = call_in_fresh_process(first_use, asdict(workload), name, **environment)
                    rows[-1]["uses"][cache] = use
            except ChildProcessError as error:
                rows[-1]["error"] = str(error)
    return rows


def first_use(workload: dict[str, Any], name: str) -> dict[str, Any]:
    """The seconds of this process to compile or load the `kernels`, and of the first training `steps`."""
    work, mode = Workload(**workload), MODES[name]
    start = time.perf_counter()
    if mode.quantized and not mode.compiled:  # a compiled network takes the kernels into its own graph
        build_kernels(work.device)
    kernels = time.perf_counter() - start
    call = work.timed_step(name).call
    return {"kernels": kernels, "steps": [seconds_of(call, 1, work.device) for _ in range(STEPS)]}


def extra_seconds(steps: list[float]) -> float:
    """How much longer the first half of the steps took than as many later ones."""
    half = len(steps) // 2
    return sum(steps[:half]) - half * median(steps[half:])
