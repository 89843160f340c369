"""What the start of a training costs in a process: run as a module by `startup.py`."""

import json
import sys
import time
from collections.abc import Sequence

import torch

from qat.measure.benchmark.steps import MODES, random_batch, train_in
from qat.quantizers import build_kernels


def main(argv: Sequence[str]) -> None:
    """Compile the kernels, train for a few steps, and print the seconds of both as JSON.

    Args:
        argv: mode, model, images a step, steps, threads, device.
    """
    name, model, batch_size, steps, threads, device = argv
    mode = MODES[name]
    torch.set_num_threads(int(threads))
    images, targets = random_batch(model, int(batch_size), torch.device(device))
    start = time.perf_counter()
    if mode.config and not mode.compiled:  # a compiled model takes the kernels into its own graph
        build_kernels(device)
    kernels = time.perf_counter() - start
    step = train_in(mode, model, images, targets).call
    seconds = []
    for _ in range(int(steps)):
        start = time.perf_counter()
        step()
        if images.is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"kernels": kernels, "steps": seconds}))


if __name__ == "__main__":
    main(sys.argv[1:])
