"""ONNX files hold integers and compute what the model computes; the model stays unchanged."""

import copy
import json
import random
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from torch import Tensor, nn

from qat import Quantization, quantize
from qat.export import export_onnx, verify
from qat.gradients import numpy_function
from qat.models import SmallCNN


def constants(path: Path) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in onnx.load(path).graph.initializer}


def test_weights_are_integers_of_their_width(file: Path) -> None:
    types = {name: t.data_type for name, t in constants(file).items() if name.endswith(".codes")}
    assert types == {
        "blocks.0.conv.weight.codes": TensorProto.INT8,
        **{f"blocks.{i}.conv.weight.codes": TensorProto.INT4 for i in (1, 2, 3)},
        "fc.weight.codes": TensorProto.INT8,
    }
    assert len(constants(file)["blocks.3.conv.weight.codes"].raw_data) == 16 * 16 * 9 // 2
    floats = [t for t in constants(file).values() if t.data_type == TensorProto.FLOAT]
    assert max(np.prod(t.dims) for t in floats) <= 16  # biases and scales


def test_metadata(file: Path) -> None:
    proto = onnx.load(file)
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 21)]  # it has no 2-bit codes
    said = {p.key: p.value for p in proto.metadata_props}
    assert json.loads(said["bits"])["blocks.1.conv"] == {"weight": 4}
    assert json.loads(said["bits"])["blocks.1.act"] == {"output": 4}
    assert json.loads(said["bits"])["fc"] == {"weight": 8, "input": 4}
    assert said["run"] == "runs/mine"
    assert json.loads(said["versions"])["torch"] == version("torch")
    assert b"/qat/" not in file.read_bytes()  # no path of a source file
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_each_channel_has_its_scale_along_axis_0(file: Path) -> None:
    nodes = {node.name: node for node in onnx.load(file).graph.node}
    node = nodes["blocks.1.conv.weight/DequantizeLinear"]
    assert [(a.name, a.i) for a in node.attribute if a.name == "axis"] == [("axis", 0)]
    assert list(constants(file)[node.input[1]].dims) == [8]


def test_batchnorm_is_folded_and_the_file_is_equal(file: Path, trained: Any) -> None:
    model, images = trained("small_cnn", deployable=True)
    assert "BatchNormalization" not in Counter(node.op_type for node in onnx.load(file).graph.node)
    done = verify(model, file, images)
    assert done.off.equal == done.on.equal == done.off.images == len(images)


def test_the_model_is_untouched_and_the_bytes_are_the_same(file: Path, trained: Any, tmp_path: Path) -> None:
    model, images = trained("small_cnn", deployable=True)
    before = copy.deepcopy(model)
    gradients = [p.grad for p in model.parameters()]
    again = export_onnx(model, images[:1], tmp_path / "again.onnx", run="runs/mine")
    assert again.read_bytes() == file.read_bytes()
    assert all(torch.equal(value, before.state_dict()[key]) for key, value in model.state_dict().items())
    assert [m.training for m in model.modules()] == [m.training for m in before.modules()]
    assert [type(m) for m in model.modules()] == [type(m) for m in before.modules()]
    assert all(p.grad is g and p.requires_grad for p, g in zip(model.parameters(), gradients, strict=True))
    assert [path.name for path in tmp_path.iterdir()] == ["again.onnx"]


@pytest.mark.parametrize(("opset", "narrowest"), [(25, TensorProto.INT2), (21, TensorProto.INT4)])
def test_odd_widths_run_with_and_without_optimizations(
    opset: int, narrowest: int, trained: Any, tmp_path: Path
) -> None:
    layers = {"*2.conv": {"weight_bits": 3, "activation_bits": 3}, "*3.conv": {"weight_bits": 1}}
    layers["fc"] = {"activation_bits": 5}
    model, images = trained("small_cnn", weight_bits=2, activation_bits=2, layers=layers)
    path = export_onnx(model, images[:2], tmp_path / "model.onnx", opset=opset)
    types = {name: t.data_type for name, t in constants(path).items()}
    assert types["blocks.1.conv.weight.codes"] == types["blocks.3.conv.weight.codes"] == narrowest
    assert types["blocks.2.conv.weight.codes"] == TensorProto.INT4
    assert types["fc.input_quantizer.zero_point"] == TensorProto.UINT8
    nodes = onnx.load(path).graph.node
    made_by = {name: node for node in nodes for name in node.output}
    before = {
        n.name: made_by[n.input[0]].op_type
        for n in nodes
        if n.op_type == "QuantizeLinear" and n.input[0] in made_by
    }
    assert before["fc.input_quantizer/QuantizeLinear"] == "Clip"  # 5 bits in a type of 8
    done = verify(model, path, images)
    assert done.unexplained == []
    assert done.on.same_class >= 0.95 * len(images)


def test_the_input_may_have_few_bits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = quantize(SmallCNN(width=4), Quantization(input_bits=4), torch.rand(2, 1, 28, 28))
    model.train()(torch.rand(8, 1, 28, 28))
    images = torch.rand(20, 1, 28, 28)
    path = export_onnx(model, images[:2], tmp_path / "model.onnx")
    types = {name: t.data_type for name, t in constants(path).items()}
    assert types["blocks.0.conv.input_quantizer.zero_point"] == TensorProto.UINT4
    done = verify(model, path, 2 * images)  # half of the values lie above the grid
    assert done.unexplained == []


def test_narrow_codes_reach_no_integer_convolution_of_the_optimizer(trained: Any, tmp_path: Path) -> None:
    layers = {
        "blocks.0.*": {"weight_bits": 2, "activation_bits": 8},
        "blocks.1.*": {"weight_bits": 8, "activation_bits": 2},
        "blocks.2.*": {"weight_bits": 8, "activation_bits": 4},
    }
    model, images = trained("resnet8", deployable=True, layers=layers)
    done = verify(model, export_onnx(model, images[:2], tmp_path / "model.onnx"), images)
    assert done.on.equal == done.off.equal == len(images)


def test_fold_takes_batchnorm_into_the_scales(trained: Any, tmp_path: Path) -> None:
    model, images = trained("small_cnn")
    model.blocks[1].bn.weight.data[0] = -0.5  # its sign goes into the codes
    path = export_onnx(model, images[:2], tmp_path / "model.onnx", fold=True)
    assert "BatchNormalization" not in Counter(node.op_type for node in onnx.load(path).graph.node)
    scales = onnx.numpy_helper.to_array(constants(path)["blocks.1.conv.weight_quantizer.scale"])
    assert (scales > 0).all()
    assert verify(model, path, images).unexplained == []


# Refused in one line, with no file left


def refused(
    model: nn.Module, tmp_path: Path, match: str, images: Tensor | None = None, **options: Any
) -> None:
    x = torch.rand(2, 1, 28, 28) if images is None else images
    with pytest.raises(ValueError, match=match):
        export_onnx(model, x, tmp_path / "model.onnx", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_was_never_calibrated(tmp_path: Path) -> None:
    model = quantize(SmallCNN(width=4), Quantization(), torch.rand(2, 1, 28, 28))
    refused(model, tmp_path, r"^blocks.0.conv: the model was never calibrated")


def test_a_model_in_its_float_phase(trained: Any, tmp_path: Path) -> None:
    model = copy.deepcopy(trained("small_cnn")[0])
    model.fc.input_quantizer.enabled = False
    refused(model, tmp_path, r"^fc: its quantizer is off")


@pytest.mark.parametrize("example", [torch.zeros(2, 1, 28, 28, dtype=torch.uint8), torch.tensor(1.0), [1.0]])
def test_an_example_that_is_no_batch_of_floats(example: Any, trained: Any, tmp_path: Path) -> None:
    refused(
        trained("small_cnn")[0], tmp_path, "^example must be of batches of floating-point numbers", example
    )


def test_an_unknown_opset_and_a_missing_folder(trained: Any, tmp_path: Path) -> None:
    model, _ = trained("small_cnn")
    refused(model, tmp_path, "opset must be one of 21, 22, 23, 24, 25; got 20", opset=20)
    with pytest.raises(ValueError, match="path must lie in a folder that exists"):
        export_onnx(model, torch.rand(2, 1, 28, 28), tmp_path / "nowhere" / "model.onnx")
    assert list(tmp_path.iterdir()) == []


class Wrapped(nn.Module):
    """A network followed by another module."""

    def __init__(self, model: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.model, self.last = copy.deepcopy(model), last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.model(x))


class ThroughNumpy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(np.sin(x.detach().numpy()))


class ThroughArray(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.as_tensor(np.asarray(x.detach()))


class ThroughBridge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.function = numpy_function(np.floor, lambda g, y, x: g)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class AddsNoise(nn.Module):
    """Gives another output in each call; an exporter sees one of them."""

    def forward(self, x: Tensor) -> Tensor:
        return x + random.random()


@pytest.mark.parametrize("last", [ThroughNumpy(), ThroughArray(), ThroughBridge()])
def test_a_forward_through_numpy_is_named(last: nn.Module, trained: Any, tmp_path: Path) -> None:
    kind = type(last).__name__
    model = Wrapped(trained("small_cnn")[0], last)
    refused(model, tmp_path, rf"^last \({kind}\) leaves the graph through .*NumPy|numpy")


@pytest.mark.parametrize("is_float", [False, True])
def test_a_file_that_fails_on_a_second_batch(is_float: bool, trained: Any, tmp_path: Path) -> None:
    model = Wrapped(SmallCNN(width=4) if is_float else trained("small_cnn")[0], AddsNoise())
    refused(model, tmp_path, "on a second random batch it differs, in no code, but in its output")
