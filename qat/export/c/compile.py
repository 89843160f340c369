"""Compiles a C file and runs it on codes."""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from qat.export.integers import IntArray

COMPILERS = ("cc", "gcc", "clang")
MAIN = """
#include <stdio.h>
#include "model.c"
static uint8_t input[{size}];
static int32_t logits[{classes}];
int main(int count, char **names) {{
  FILE *from = fopen(names[1], "rb"), *to = fopen(names[2], "wb");
  if (!from || !to) return count;
  while (fread(input, 1, {size}, from) == {size}) {{
    predict(input, logits);
    fwrite(logits, 4, {classes}, to);
  }}
  return fclose(to);
}}
"""


def c_logits(compiler: str, path: Path, codes: IntArray, classes: int) -> IntArray:
    """The integer logits of a C file. Shape: `(N, C, H, W)` -> `(N, classes)`.

    Args:
        compiler: path of the compiler, from `find_compiler`.
        path: path of the C file.
        codes: codes minus the lowest code of the input, as `predict` takes them.
        classes: number of logits.

    Raises:
        ValueError: the file does not compile, or the program fails.
    """
    with TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copy(path, folder / "model.c")
        (folder / "main.c").write_text(MAIN.format(size=codes[0].size, classes=classes))
        codes.astype(np.uint8).tofile(folder / "codes")
        program = str(folder / "model.exe")  # Windows runs no other suffix
        _run([compiler, "-std=c99", "-O2", "main.c", "-o", program], folder)
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
