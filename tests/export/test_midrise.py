"""Weights without a zero: in every file they are what was trained, and take their bits."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from qat import Quantization, quantize
from qat.export import IntegerModel, export_onnx, verify, write_c
from qat.export.c.compile import c_logits, find_compiler
from qat.models import LeNet

IMAGES = torch.rand(8, 1, 28, 28, generator=torch.Generator().manual_seed(0))
LAYER = "head.2"


def trained(bits: int, **settings: Any) -> Any:
    torch.manual_seed(1)
    model = quantize(LeNet(), Quantization(weight_bits=bits, weight_levels="midrise", **settings), IMAGES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(IMAGES), torch.arange(8)).backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_every_file_computes_the_same(bits: int, tmp_path: Path) -> None:
    model = trained(bits, deployable=True)
    layer = model.get_submodule(LAYER)
    codes = layer.weight_quantizer.codes(layer.effective_weight).unique().tolist()
    assert len(codes) > 2 ** (bits - 1)
    assert set(codes) <= set(range(1 - 2**bits, 2**bits, 2))
    path = tmp_path / "model.onnx"
    export_onnx(model, IMAGES[:2], path)
    assert verify(model, path, IMAGES).off.equal == len(IMAGES)
    integers = IntegerModel(model, (1, 28, 28))
    assert integers.program.is_exact
    assert integers.compare(IMAGES).logits.equal == len(IMAGES)
    step = next(step for step in integers.program.steps if step.layer == LAYER and step.op == "conv")
    assert len(step.packed_weight) == -(-layer.weight.numel() * bits // 8)
    if compiler := find_compiler():
        write_c(integers, tmp_path / "model.c")
        found = c_logits(compiler, tmp_path / "model.c", integers.codes(IMAGES), 10)
        assert np.array_equal(found, integers(integers.codes(IMAGES)))


@pytest.mark.parametrize(
    ("bits", "opset", "stored"),
    [(2, 25, "INT2"), (2, 21, "INT4"), (3, 25, "INT4"), (4, 25, "INT8")],
)
def test_types_and_values_in_onnx(bits: int, opset: int, stored: str, tmp_path: Path) -> None:
    model = trained(bits, activation_bits=8)
    path = tmp_path / "model.onnx"
    export_onnx(model, IMAGES[:2], path, opset=opset)
    graph = onnx.load(path).graph
    kinds = {x.name: onnx.TensorProto.DataType.Name(x.data_type) for x in graph.initializer}
    assert kinds[f"{LAYER}.weight.codes"] == stored
    assert any(name.endswith(".shift") for name in kinds) == (stored == "INT2")
    assert verify(model, path, IMAGES).on.same_class == len(IMAGES)


def test_a_negative_batchnorm_is_folded_into_codes_and_shift(tmp_path: Path) -> None:
    torch.manual_seed(2)
    net = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64, 3)),
    )
    x = torch.rand(8, 1, 8, 8)
    model = quantize(net, Quantization(weight_bits=2, weight_levels="midrise"), x)
    nn.init.uniform_(model[3].weight, -2, -1)
    model(x)
    model.eval()
    export_onnx(model, x[:2], tmp_path / "model.onnx", fold=True)
    assert verify(model, tmp_path / "model.onnx", x).off.same_class == len(x)
