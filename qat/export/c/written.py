"""What a written file computes: npz read back by its reader, C compiled and run."""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qat.export.integers import reader

COMPILERS = ("cc", "gcc", "clang")
BATCH = 50  # images at a time
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
Integers = NDArray[Any]


def npz_logits(path: Path, codes: Integers) -> Integers:
    """The integer logits of an npz file. Shape: `(N, C, H, W)` -> `(N, classes)`."""
    steps, arrays = reader.load(str(path))
    starts = range(0, len(codes), BATCH)
    parts = [reader.run(steps, arrays, codes[start : start + BATCH])[-1] for start in starts]
    return np.concatenate(parts).reshape(len(codes), -1)


def c_logits(compiler: str, path: Path, codes: Integers, classes: int) -> Integers:
    """The integer logits of a C file. Shape: `(N, C, H, W)` -> `(N, classes)`.

    Args:
        compiler: as `find_compiler` gives it.
        path: of the C file.
        codes: minus the lowest code of the input, as `predict` takes them.
        classes: how many logits it writes.

    Raises:
        ValueError: it does not compile, or the program fails.
    """
    with TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copy(path, folder / "model.c")
        (folder / "main.c").write_text(MAIN.format(size=codes[0].size, classes=classes))
        codes.astype(np.uint8).tofile(folder / "codes")
        program = str(folder / "model.exe")  # a name that every system runs
        _run([compiler, "-std=c99", "-O2", "main.c", "-o", program], folder)
        _run([program, "codes", "logits"], folder)
        return np.fromfile(folder / "logits", np.int32).reshape(len(codes), classes)


def find_compiler() -> str | None:
    """The first C compiler on this machine that answers; a name alone may be an empty promise."""
    for name in COMPILERS:
        path = shutil.which(name)
        if path and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    return None


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(
            f"the C fails: {Path(command[0]).name} returns {done.returncode}: {done.stderr[:200]}"
        )
