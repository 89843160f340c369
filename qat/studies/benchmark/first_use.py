"""The seconds of the first training steps of a process: run as a module by `startup.py`."""

import json
import sys
import time
from collections.abc import Sequence

import torch

from qat.studies.benchmark.steps import MODES, random_batch, train_in


def main(argv: Sequence[str]) -> None:
    """Train for a few steps and print their seconds as JSON.

    Args:
        argv: mode, model, images a step, steps, threads, device.
    """
    mode, model, batch_size, steps, threads, device = argv
    torch.set_num_threads(int(threads))
    images, targets = random_batch(model, int(batch_size), torch.device(device))
    step = train_in(MODES[mode], model, images, targets).call
    seconds = []
    for _ in range(int(steps)):
        start = time.perf_counter()
        step()
        if images.is_cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
