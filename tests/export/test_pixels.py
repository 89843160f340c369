"""What a pixel byte becomes: the byte p means p / 255, in Python, npz and C."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from qat import Quantization, quantize
from qat.export import IntegerModel, write_c, write_npz
from qat.export.integers import reader

PIXELS = torch.cat([torch.arange(256), torch.randperm(256, generator=torch.Generator().manual_seed(0))])
PIXELS = PIXELS.to(torch.uint8).reshape(2, 1, 16, 16)
MAIN = """
#include <stdio.h>
#include "model.c"
static uint8_t frame[256];
static int32_t logits[3];
int main(void) {
  while (fread(frame, 1, 256, stdin) == 256) {
    predict_pixels(frame, logits);
    predict_pixels(frame, logits); /* the frame is as it was */
    fwrite(logits, 4, 3, stdout);
  }
  return 0;
}
"""
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "deployable": {"deployable": True},
    "four bits": {"deployable": True, "input_bits": 4},
    "signed": {"deployable": True, "input_signed": True},
    "asymmetric": {"asymmetric": True, "input_signed": True},
}


def trained(options: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(196, 3)
    model = quantize(nn.Sequential(*layers), Quantization(**options), PIXELS / 255)
    model(PIXELS / 255)
    return model.eval()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_raw_bytes_give_the_logits_of_python(options: dict[str, Any], tmp_path: Path) -> None:
    model = trained(options)
    integers = IntegerModel(model, (1, 16, 16))
    assert np.array_equal(integers.pixel_codes(), model[0].input_quantizer.codes(torch.arange(256) / 255))
    expected = integers(integers.codes(PIXELS / 255))
    if integers.program.is_exact:
        with torch.no_grad():
            assert np.array_equal(
                expected * integers.program.output_scale, model(PIXELS / 255).double().numpy()
            )

    write_npz(integers, tmp_path / "model.npz")
    np.save(tmp_path / "pixels.npy", PIXELS.numpy())
    command = [sys.executable, reader.__file__, "model.npz", "pixels.npy"]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert [int(word) for word in out.split()] == expected.argmax(1).tolist()

    source = write_c(integers, tmp_path / "model.c")
    identity = np.array_equal(integers.pixel_codes(), np.arange(256))
    assert ("code_of_pixel" in source.text) is not identity
    assert identity is ("deployable" not in options)
    if shutil.which("gcc"):
        (tmp_path / "main.c").write_text(MAIN)
        gcc = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "main.c", "-o", "main"]
        subprocess.run(gcc, cwd=tmp_path, check=True)
        raw = subprocess.run(["./main"], cwd=tmp_path, input=PIXELS.numpy().tobytes(), capture_output=True)
        assert np.array_equal(np.frombuffer(raw.stdout, np.int32).reshape(2, 3), expected)


def test_results_are_shown_in_one_line(tmp_path: Path) -> None:
    integers = IntegerModel(trained({}), (1, 16, 16))
    results = write_c(integers, tmp_path / "model.c"), integers, integers.program, integers.program.steps[1]
    for result in (*results, integers.compare(PIXELS / 255)):
        assert max(len(repr(result)), len(str(result))) < 300
        assert "\n" not in f"{result}{result!r}"
