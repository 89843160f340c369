"""C99 that gives the integers of the reference, bit for bit."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from qat import Quantization, quantize
from qat.export import CSource, IntegerModel, write_c

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc on this machine")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
SANITIZE = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
MAIN = """
#include <stdio.h>
#include "model.c"
static uint8_t input[SIZE];
static int32_t logits[10];
int main(void) {
  while (fread(input, 1, SIZE, stdin) == SIZE) {
    const int32_t best = predict(input, logits);
    fwrite(&best, 4, 1, stdout);
    fwrite(logits, 4, 10, stdout);
  }
  return 0;
}
"""


class ReadTwice(nn.Module):
    """Two rescalings read the first sum; one of them reads another sum, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.pool, self.relu, self.last = nn.AdaptiveAvgPool2d(1), nn.ReLU(), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = self.second(x) + x
        return self.last(torch.flatten(self.pool(self.relu(x)), 1))


class Unread(nn.Module):
    """A convolution runs, and nothing reads its output."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.unread, self.relu = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 1), nn.ReLU()
        self.last = nn.Linear(72, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        self.unread(x)
        return self.last(torch.flatten(self.relu(x), 1))


def run_c(folder: Path, codes: Any, options: list[str]) -> Any:
    """What predict returns and the logits, `(N, 1 + classes)`."""
    (folder / "main.c").write_text(MAIN)
    size = f"-DSIZE={codes[0].size}"
    subprocess.run(["gcc", *STRICT, *options, size, "main.c", "-o", "model"], cwd=folder, check=True)
    run = subprocess.run(
        [str(folder / "model")], input=codes.astype(np.uint8).tobytes(), capture_output=True, check=True
    )
    return np.frombuffer(run.stdout, np.int32).reshape(len(codes), -1)


@needs_gcc
@pytest.mark.parametrize(
    ("name", "settings", "count", "options"),
    [
        ("small_cnn", {"deployable": True}, 1000, ["-O2"]),
        ("small_cnn", {"deployable": True}, 50, SANITIZE),
        ("small_cnn", {"weight_bits": 3, "activation_bits": 5}, 50, SANITIZE),  # averages floats; odd widths
        ("resnet8", {"weight_bits": 1, "activation_bits": 2}, 5, SANITIZE),  # residual sums
        ("resnet8", {"input_signed": True, "asymmetric": True, "weight_scale": "dorefa"}, 5, SANITIZE),
    ],
)
def test_it_gives_the_integers_of_the_reference(
    name: str, settings: dict[str, Any], count: int, options: list[str], trained: Any, tmp_path: Path
) -> None:
    model, images = trained(name, **settings)
    integers = IntegerModel(model, tuple(images.shape[1:]))
    write_c(integers, tmp_path / "model.c")
    torch.manual_seed(1)
    codes = integers.codes(torch.rand(count, *images.shape[1:]))
    found = run_c(tmp_path, codes - integers.program.steps[0].settings["low"], options)
    expected = integers(codes)
    assert np.array_equal(found[:, 1:], expected)
    assert np.array_equal(found[:, 0], expected.argmax(axis=1))


@needs_gcc
@pytest.mark.parametrize("build", [ReadTwice, Unread])
def test_a_sum_that_is_read_twice_or_never(build: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = quantize(build(), Quantization(), torch.rand(4, 1, 8, 8))
    model(torch.rand(8, 1, 8, 8))
    integers = IntegerModel(model, (1, 8, 8))
    write_c(integers, tmp_path / "model.c")
    images = torch.rand(20, 1, 8, 8)
    codes = integers.codes(images)
    assert np.array_equal(run_c(tmp_path, codes, SANITIZE)[:, 1:], integers(codes))
    assert integers.compare(images).predictions == 0


def test_no_heap_no_floats_no_library(trained: Any, tmp_path: Path) -> None:
    source = write_c(IntegerModel(trained("small_cnn")[0], (1, 28, 28)), tmp_path / "model.c")
    code = source.text.partition("*/")[2]
    assert [line for line in code.splitlines() if line.startswith("#")] == ["#include <stdint.h>"]
    for word in ("malloc", "float", "double", "math", "memcpy"):
        assert word not in code


def test_weights_take_their_bits(trained: Any, tmp_path: Path) -> None:
    model, _ = trained("resnet8", weight_bits=3)
    source: CSource = write_c(IntegerModel(model, (3, 16, 16)), tmp_path / "model.c")
    ends = (model.stem[0], model.fc)
    bits = sum(
        m.weight.numel() * (8 if m in ends else 3) for m in model.modules() if hasattr(m, "weight_quantizer")
    )
    assert bits / 8 <= source.weights <= 1.05 * bits / 8
    assert f"flash:  {source.flash} bytes of constants, of these {source.weights} of weights" in source.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_bits": 16}, "^blocks.1.conv: C holds weights of 1 to 8 bits, got 16; export it as npz"),
        ({"activation_bits": 16, "weight_bits": 2}, "C holds activations of 1 to 8 bits, got more"),
    ],
)
def test_wider_grids_are_refused(
    settings: dict[str, Any], message: str, trained: Any, tmp_path: Path
) -> None:
    model, _ = trained("small_cnn", **settings)
    with pytest.raises(ValueError, match=message):
        write_c(IntegerModel(model, (1, 28, 28)), tmp_path / "model.c")
    assert list(tmp_path.iterdir()) == []


NAMES = [
    "a*/ int evil(void){return 1;} /*",
    "??/",
    "*??/\n/ int evil(void);",
    "*\\\n/",
    '"',
    "int",
    "é漢",
    "\u202e",
]


@needs_gcc
def test_names_of_layers_stay_comments(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential()
    for n, name in enumerate(NAMES):
        net.add_module(name, nn.Conv2d(1 if n == 0 else 2, 2, 1))
        nn.init.ones_(net[-1].bias)
        net.add_module(f"{name} relu", nn.ReLU())
    net.add_module("flatten", nn.Flatten())
    net.add_module("\ud800", nn.Linear(8, 10))
    model = quantize(net, Quantization(), torch.rand(4, 1, 2, 2))
    model(torch.rand(8, 1, 2, 2))
    integers = IntegerModel(model, (1, 2, 2))
    text = write_c(integers, tmp_path / "model.c").text
    assert text.isascii()
    assert "/* a%2A/ int evil%28void%29%7Breturn 1%3B%7D /%2A */" in text
    codes = integers.codes(torch.rand(5, 1, 2, 2))
    assert np.array_equal(run_c(tmp_path, codes, ["-pedantic"])[:, 1:], integers(codes))
