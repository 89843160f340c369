"""Call a function in a fresh process, in which nothing is left of earlier measurements."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch


def call_in_fresh_process(function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
    """Call a module's function in a fresh process that uses as many threads as this one.

    Args:
        function: found in its module by its name.
        arguments: what JSON can hold, as must be the result.
        environment: additional environment variables.

    Raises:
        ChildProcessError: the process failed; the message is the last line that it wrote to stderr.
    """
    child = subprocess.run(
        [sys.executable, "-m", __name__],
        input=json.dumps([function.__module__, function.__name__, torch.get_num_threads(), arguments]),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if child.returncode:
        lines = child.stderr.strip().splitlines() or [f"exit code {child.returncode} without a message"]
        raise ChildProcessError(lines[-1])
    return json.loads(child.stdout.splitlines()[-1])


if __name__ == "__main__":
    module, name, threads, arguments = json.load(sys.stdin)
    torch.set_num_threads(threads)
    print(json.dumps(getattr(import_module(module), name)(*arguments)))
