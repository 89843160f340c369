"""Compiles a C file and runs it on codes."""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from qat.export.integers.program import IntArray

COMPILERS = ("cc", "gcc", "clang")
MAIN = Path(__file__).with_name("main.c")


def c_logits(compiler: str, path: Path, codes: IntArray, classes: int) -> IntArray:
    """The integer logits of a C file. Shape: `(N, C, H, W)` -> `(N, classes)`.

    `codes` are those of `IntegerModel.codes` minus the lowest code of the input, as `predict` takes them.

    Raises:
        ValueError: the file does not compile, or the program fails.
    """
    with TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copy(path, folder / "model.c")
        shutil.copy(MAIN, folder)
        codes.astype(np.uint8).tofile(folder / "codes")
        program = str(folder / "model.exe")  # Windows runs no other suffix
        sizes = f"-DSIZE={codes[0].size}", f"-DCLASSES={classes}"
        _run([compiler, "-std=c99", "-O2", *sizes, "main.c", "-o", program], folder)
        _run([program, "codes", "logits"], folder)
        return np.fromfile(folder / "logits", np.int32).reshape(len(codes), classes).astype(np.int64)


def find_compiler() -> str | None:
    """The path of the first C compiler on this machine that answers."""
    for name in COMPILERS:
        path = shutil.which(name)
        # macOS has a `cc` that only offers to install a compiler.
        if path and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    return None


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        name = Path(command[0]).name
        raise ValueError(f"the C file fails: {name} returns {done.returncode}: {done.stderr[:200]}")
