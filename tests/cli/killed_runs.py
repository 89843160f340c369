"""A process that starts trainings and kills them: each line of its input is one training, as JSON.

Each training is a fork of this process, which has imported everything: a hundred of them take minutes.
The answer is a line with the exit code. Keys of a training:
    args: the words after `train`.
    at: [event, count], the moment: `batch`, `half` (half of a file is written), `rename` or `renamed`; or
        ["seconds", after].
    signal: its number; 0 fills the disk instead, for every file that is written from that moment on.
    tmpdir: the folder for temporary files.
    out, err, done: the files for what the training prints, and for the epochs that it has saved.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

import torch

from qat.cli.train import main
from qat.training import Classifier
from qat.training.saving import Last


def strike(number: int) -> None:
    if number:
        os.kill(os.getpid(), number)
    else:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))


def arm(plan: dict[str, Any]) -> None:
    """Let the moment come."""
    event, count = plan["at"]
    left = [count]

    def happens(name: str) -> bool:
        left[0] -= name == event
        return name == event and left[0] == 0

    def step(self: Classifier, *arguments: Any) -> Any:
        if happens("batch"):
            strike(plan["signal"])
        return training_step(self, *arguments)

    def write(self: Path, content: bytes) -> int:
        if self.name.endswith(".part") and ".ckpt." in self.name and happens("half"):
            with self.open("wb") as file:
                file.write(content[: len(content) // 2])
                file.flush()
                strike(plan["signal"])
        return write_bytes(self, content)

    def replace(self: Path, target: Path) -> Path:
        if str(target).endswith(".ckpt") and happens("rename"):
            strike(plan["signal"])
        path = rename(self, target)
        if str(target).endswith(".ckpt") and happens("renamed"):
            strike(plan["signal"])
        return path

    def epoch_end(self: Last, trainer: Any, module: Any) -> None:
        saved(self, trainer, module)
        with Path(plan["done"]).open("a") as file:
            file.write(f"{trainer.current_epoch}\n")

    training_step, write_bytes, rename = Classifier.training_step, Path.write_bytes, Path.replace
    saved = Last.on_train_epoch_end
    Classifier.training_step, Path.write_bytes, Path.replace = step, write, replace  # type: ignore
    Last.on_train_epoch_end = epoch_end  # type: ignore
    if event == "seconds":
        threading.Timer(count, strike, [plan["signal"]]).start()


def train(plan: dict[str, Any]) -> int:
    os.environ["TMPDIR"], tempfile.tempdir = plan["tmpdir"], None
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(plan[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as `main` does
    arm(plan)
    try:
        main(plan["args"])
    except SystemExit as end:
        return int(end.code or 0)
    except KeyboardInterrupt:  # before `main` began
        return 130
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = train(json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
