"""Train runs one after another in this process, or several at a time, each in a process of its own."""

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from qat.experiment.display import Display
from qat.experiment.plan import TrainingRun
from qat.experiment.run import train
from qat.names import one_line

FAILURES = (ValueError, OSError, FloatingPointError)
"""What a run may fail with through no fault of the package; anything else is a bug."""


@contextmanager
def threads_of_torch(number: int) -> Iterator[None]:
    """Inside it, torch computes with this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_of_a_run(jobs: int) -> tuple[int, int]:
    """How many runs go on at a time, and how many threads each has.

    Args:
        jobs: how many runs are asked for; 0: one for each thread that torch has on this machine.

    Raises:
        ValueError: it is negative.
    """
    if jobs < 0:
        raise ValueError(f"jobs must be at least 1, or 0 for one on each thread; got {jobs}")
    threads = torch.get_num_threads()
    jobs = jobs or threads
    return jobs, max(1, threads // jobs)


def train_here(runs: Sequence[TrainingRun], out: Path, display: Display) -> None:
    """Train runs one after another in this process; one that fails leaves the others going."""
    for run in runs:
        display.begin(run)
        try:
            accuracy = train(run, out / run.folder, _advance_of(display, run))
        except FAILURES as error:
            display.fail(run, one_line(error))
        else:
            display.end(run, accuracy)


def _advance_of(display: Display, run: TrainingRun) -> Callable[[float], None]:
    return lambda epochs: display.advance(run, epochs)


def train_in_processes(
    runs: Sequence[TrainingRun], out: Path, display: Display, jobs: int, threads: int
) -> None:
    """Train several runs at a time, each in a process of its own.

    One that fails or is killed leaves the others going. When this process ends, in whatever way, all of
    them end.

    Args:
        runs: in the order in which they begin.
        out: the folder of their folders.
        display: is told what happens.
        jobs: how many go on at a time, >= 1.
        threads: of each.
    """
    # A fork server imports torch once for all runs. Windows has none.
    context: Any = get_context("spawn" if sys.platform == "win32" else "forkserver")
    if sys.platform != "win32":
        context.set_forkserver_preload([__name__])
    waiting = list(runs)[::-1]
    going: dict[Connection, tuple[TrainingRun, BaseProcess]] = {}
    try:
        while waiting or going:
            while waiting and len(going) < jobs:
                run = waiting.pop()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(run, out, threads, sender), daemon=True)
                process.start()
                sender.close()  # so that the pipe ends when the process does
                going[receiver] = run, process
                display.begin(run)
            for ready in wait(list(going)):
                assert isinstance(ready, Connection)
                if not _hear(ready, *going[ready], display):
                    del going[ready]
    finally:
        for _, process in going.values():
            process.kill()  # not SIGTERM, which Lightning answers with a traceback
        for _, process in going.values():
            process.join()


def _hear(receiver: Connection, run: TrainingRun, process: BaseProcess, display: Display) -> bool:
    """Pass one message of a run on to the display; whether more may come."""
    try:
        what, value = receiver.recv()
    except EOFError:
        process.join()
        what, value = "fail", f"its process was killed (exit code {process.exitcode})"
    getattr(display, what)(run, value)
    if what == "advance":
        return True
    receiver.close()
    process.join()
    return False


def _work(run: TrainingRun, out: Path, threads: int, sender: Connection) -> None:
    """Train one run in this process; what happens goes through the pipe."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the parent too, which then ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.disable(logging.INFO)  # lines of Lightning that would tear the bars
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    try:
        accuracy = train(run, out / run.folder, lambda epochs: sender.send(("advance", epochs)))
    except FAILURES as error:
        sender.send(("fail", one_line(error)))
    except Exception as error:  # a bug: the traceback goes to stderr, the comparison goes on
        sender.send(("fail", one_line(f"{type(error).__name__}: {error}")))
        raise
    else:
        sender.send(("end", accuracy))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
