"""Names of classes and layers in C: text alone, whatever their characters."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from qat import Quantization, quantize
from qat.export import IntegerModel, write_c
from qat.export.c.text import c_string

EVIL = (
    'quote"s',
    "back\\slash\\",
    "new\nline\r\n",
    "caf\u00e9 \u732b",
    "*/ int evil(void) { return 1; } /*",
    "??/ ??) ??=",
    "%s %n",
    "7\x01\t8",
    "",
    "\\0431",
)
NAMES_MAIN = """
#include <stdio.h>
#include "model.c"
int main(void) {
  for (int i = -1; predict_class_name(i) || i < 0; ++i)
    if (i >= 0) { fputs(predict_class_name(i), stdout); fputc(0, stdout); }
  return predict_class_name(-1) != 0;
}
"""


class Named(nn.Module):
    """Two layers with names that would end a comment."""

    def __init__(self) -> None:
        super().__init__()
        for name, layer in (
            ("a*/ int evil(void){return 1;} /*", nn.Conv2d(1, 2, 3)),
            ("b??/\nint x", nn.ReLU()),
        ):
            self.add_module(name, layer)
        self.fc = nn.Linear(72, len(EVIL))

    def forward(self, x: Tensor) -> Tensor:
        conv, relu, fc = self.children()
        return fc(relu(conv(x)).flatten(1))


@pytest.fixture(scope="module")
def integers() -> IntegerModel:
    torch.manual_seed(0)
    model = quantize(Named(), Quantization(), torch.rand(4, 1, 8, 8))
    model(torch.rand(8, 1, 8, 8))
    return IntegerModel(model, (1, 8, 8))


@pytest.mark.parametrize("std", ["c99", "c11"])
def test_names_come_out_as_they_went_in(integers: IntegerModel, tmp_path: Path, std: str) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc on this machine")
    write_c(integers, tmp_path / "model.c", EVIL)
    (tmp_path / "main.c").write_text(NAMES_MAIN)
    strict = [f"-std={std}", "-Wall", "-Wextra", "-Wcomment", "-Wtrigraphs", "-pedantic", "-Werror"]
    subprocess.run(["gcc", *strict, "main.c", "-o", "model"], cwd=tmp_path, check=True)
    run = subprocess.run([str(tmp_path / "model")], capture_output=True, check=True)
    assert run.stdout.decode() == "".join(f"{name}\0" for name in EVIL)


def test_no_name_is_code(integers: IntegerModel, tmp_path: Path) -> None:
    source = write_c(integers, tmp_path / "model.c", EVIL)
    assert source.text.isascii()
    assert "evil(void){" not in source.text
    assert "\nint x" not in source.text
    assert "??" not in source.text
    comments = source.text.count("/*")
    assert comments == source.text.count("*/")
    without = write_c(integers, tmp_path / "model.c")
    assert "class_name" not in without.text
    assert source.flash - without.flash == sum(4 + len(name.encode()) + 1 for name in EVIL)


def test_plain_names_stay_readable() -> None:
    assert c_string("T-shirt/top (7)") == '"T-shirt/top (7)"'
    assert c_string('a"b') == r'"a\042b"'


@pytest.mark.parametrize(
    "names", [["a"], "ten chars!", [*EVIL[:-1], 9], [*EVIL[:-1], "\0"], [*EVIL[:-1], "\ud800"]]
)
def test_names_that_do_not_fit(integers: IntegerModel, tmp_path: Path, names) -> None:
    with pytest.raises(ValueError, match=r"^class_names must be a list of 10 texts, [^\n]*; [^\n]*$"):
        write_c(integers, tmp_path / "model.c", names)
    assert list(tmp_path.iterdir()) == []
