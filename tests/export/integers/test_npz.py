"""The npz file, and its reader, which needs NumPy alone."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qat.export import IntegerModel, write_npz
from qat.export.integers import reader


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("small_cnn", {"deployable": True}),
        ("small_cnn", {"weight_bits": 1, "activation_bits": 3}),
        ("resnet8", {}),
    ],
)
def test_the_reader_gives_the_logits(
    name: str, settings: dict[str, Any], trained: Any, tmp_path: Path
) -> None:
    model, images = trained(name, **settings)
    integers = IntegerModel(model, tuple(images.shape[1:]))
    path = write_npz(integers, tmp_path / "model.npz")
    codes = integers.codes(images)
    assert np.array_equal(reader.run(*reader.load(str(path)), codes)[-1][:, :, 0, 0], integers(codes))
    assert write_npz(integers, tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_the_reader_runs_as_a_program(trained: Any, tmp_path: Path) -> None:
    model, images = trained("small_cnn", deployable=True)
    integers = IntegerModel(model, (1, 28, 28))
    write_npz(integers, tmp_path / "model.npz")
    np.save(tmp_path / "codes.npy", integers.codes(images))
    program = tmp_path / "reader.py"
    program.write_text(Path(reader.__file__).read_text())
    command = [sys.executable, "-I", str(program), "model.npz", "codes.npy"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [int(word) for word in run.stdout.split()] == integers.predict(images).tolist()


def test_the_reader_is_short_and_needs_numpy_alone() -> None:
    text = Path(reader.__file__).read_text()
    assert len(text.splitlines()) < 100
    names = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {str(name).partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {"numpy"}
