"""Train runs one after another in this process, or several at a time, each in its own process."""

import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from qat.experiment.display import Display
from qat.experiment.plan import TrainingRun
from qat.experiment.run import train
from qat.names import one_line


@contextmanager
def shared_threads(jobs: int) -> Iterator[int]:
    """Give each of `jobs` runs its share of torch's threads; yield their number: 0 is one per thread."""
    if jobs < 0:
        raise ValueError(f"jobs must be at least 1, or 0 for one on each thread; got {jobs}")
    before = torch.get_num_threads()
    jobs = jobs or before
    torch.set_num_threads(max(1, before // jobs))
    try:
        yield jobs
    finally:
        torch.set_num_threads(before)


def train_here(runs: list[TrainingRun], out: Path, display: Display) -> None:
    """Train runs one after another in this process; one that fails leaves the others going."""
    for run in runs:
        display.tell(run, "begin")
        _train_and_tell(run, out, partial(display.tell, run))


def train_in_processes(runs: list[TrainingRun], out: Path, display: Display, jobs: int) -> None:
    """Train `jobs` runs at a time, each in its own process, with as many threads as torch has here.

    One that fails or is killed leaves the others going. When this process ends, in whatever way, all end.
    """
    # A fork server imports torch once for all runs. Windows has none.
    context: Any = get_context("spawn" if sys.platform == "win32" else "forkserver")
    if sys.platform != "win32":
        context.set_forkserver_preload([__name__])
    waiting = runs[::-1]
    going: dict[Any, tuple[TrainingRun, Any]] = {}  # run and process by the pipe that leads here
    try:
        while waiting or going:
            while waiting and len(going) < jobs:
                run = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                arguments = (run, out, Path.cwd(), torch.get_num_threads(), sender)
                process = context.Process(target=_work, args=arguments, daemon=True)
                process.start()
                sender.close()  # so that the pipe ends when the process does
                going[receiver] = run, process
                display.tell(run, "begin")
            ready: list[Any] = wait(list(going))
            for receiver in ready:
                run, process = going[receiver]
                try:
                    event, value = receiver.recv()
                except EOFError:
                    process.join()
                    event, value = "fail", f"its process ended early (exit code {process.exitcode})"
                if event != "advance":
                    process.join()
                    del going[receiver]
                display.tell(run, event, value)
    finally:
        for _, process in going.values():
            process.kill()  # not SIGTERM, which Lightning answers with a traceback
            process.join()


def _train_and_tell(run: TrainingRun, out: Path, tell: Callable[[str, Any], None]) -> None:
    try:
        accuracy = train(run, out / run.folder, partial(tell, "advance"))
    except (ValueError, OSError, FloatingPointError) as error:
        tell("fail", one_line(error))
    except Exception as error:  # a bug; it leaves the other runs going all the same
        traceback.print_exc()
        tell("fail", one_line(f"{type(error).__name__}: {error}"))
    else:
        tell("end", accuracy)


def _work(run: TrainingRun, out: Path, here: Path, threads: int, sender: Any) -> None:
    """Train one run in this process; what happens goes through the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends this process
    threading.Thread(target=_end_with_parent, args=[parent_process()], daemon=True).start()
    logging.disable(logging.INFO)  # lines of Lightning that would tear the bars
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    os.chdir(here)  # multiprocessing starts in the folder where Python was started
    _train_and_tell(run, out, lambda *event: sender.send(event))


def _end_with_parent(parent: Any) -> None:
    parent.join()
    os._exit(1)
