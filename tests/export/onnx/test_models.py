"""Models that export must take as they are: shared layers, any batch size, any state of torch, any name."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from qat import Quantization, checkpoint_blocks, quantize
from qat.export import IntegerModel, export_onnx, onnx_sizes, verify
from qat.export.onnx.first_difference import first_differences
from qat.export.onnx.session import OFF
from qat.models import SmallCNN


def calibrated(
    net: nn.Module, shape: tuple[int, ...] = (1, 8, 8), **settings: Any
) -> tuple[nn.Module, Tensor]:
    images = torch.rand(8, *shape)
    model = quantize(net, Quantization(**settings), images)
    model.train()(images)
    return model.eval(), images


def exported(model: nn.Module, images: Tensor, folder: Path, **options: Any) -> list[str]:
    """The operators of the file, which computes what the model does."""
    path = export_onnx(model, images, folder / "model.onnx", **options)
    done = verify(model, path, torch.cat([images, 20 * images, -20 * images]))
    assert done.unexplained == []
    assert done.on.within == done.off.within == done.on.images
    return [node.op_type for node in onnx.load(path).graph.node]


def test_values_beyond_a_narrow_input_saturate(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, images = calibrated(
        nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3)), (3, 8, 8), input_bits=4
    )
    exported(model, images, tmp_path)


# Shared and equal layers


class Twice(nn.Module):
    """A layer runs twice, and two layers share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice, self.other = (nn.Conv2d(c, 2, 3, padding=1) for c in (1, 2, 2))
        self.other.weight = self.twice.weight
        self.relu, self.last = nn.ReLU(), nn.Linear(128, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.other(self.relu(self.twice(self.twice(self.first(x)))))
        return self.last(torch.flatten(x, 1))


@pytest.mark.parametrize("deployable", [False, True])
def test_a_layer_that_runs_twice(deployable: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, images = calibrated(Twice(), deployable=deployable)
    exported(model, images, tmp_path)
    assert onnx_sizes(model, images).layers == {"first": 18, "twice": 18, "other": 18, "last": 384}
    done = IntegerModel(model, (1, 8, 8)).compare(torch.cat([images, 20 * images]))
    assert done.differing_codes == 0
    assert done.codes["twice.input_quantizer"][1] == 2 * 16 * 128  # those of both calls


def equal_layers() -> nn.Sequential:
    convolutions = [nn.Conv2d(c, 4, 3) for c in (1, 4, 4)]
    convolutions[2].load_state_dict(convolutions[1].state_dict())
    layers = [layer for convolution in convolutions for layer in (convolution, nn.ReLU())]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


def test_equal_layers_keep_a_weight_each(tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = torch.rand(2, 1, 8, 8)
    assert onnx_sizes(equal_layers(), images).layers == {"0": 144, "2": 576, "4": 576, "7": 192}
    model, images = calibrated(equal_layers(), deployable=True, per_channel=False)
    assert onnx_sizes(model, images).layers == {"0": 36, "2": 72, "4": 72, "7": 48}
    exported(model, images, tmp_path)


class TwiceOnOneTensor(Twice):
    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = self.twice(x) + self.twice(x) + self.twice(self.twice(x))
        return self.last(torch.flatten(self.relu(self.other(x)), 1))


def test_codes_are_compared_call_by_call(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, images = calibrated(TwiceOnOneTensor())
    content = export_onnx(model, images, tmp_path / "model.onnx").read_bytes()
    found = first_differences(model, content, (images,), np.arange(8), OFF)
    assert [one.layer for one in found] == [""] * 8  # no code differs


# Folding, whatever the axis and the class


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("per_channel", [False, True])
def test_batchnorm_folds_into_a_transposed_convolution(
    groups: int, per_channel: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, groups=groups), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 3, 3)
    )
    nn.init.uniform_(net[1].weight, -1, 1)
    model, images = calibrated(net, (4, 6, 6), per_channel=per_channel)
    assert "BatchNormalization" not in exported(model, images, tmp_path, fold=True)


@pytest.mark.parametrize("pattern", ["blocks.*.conv", "blocks.*.bn", "blocks.*", "pool"])
def test_checkpointed_parts_are_exported_as_plain_ones(pattern: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, images = calibrated(SmallCNN(width=4), (1, 28, 28))
    plain = IntegerModel(copy.deepcopy(model), (1, 28, 28)).program
    checkpoint_blocks(model, [pattern])
    assert "BatchNormalization" not in exported(model, images, tmp_path, fold=True)
    assert [step.op for step in IntegerModel(model, (1, 28, 28)).program.steps] == [s.op for s in plain.steps]


# Any batch size


class Flattened(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers, self.function, self.last = (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()),
            function,
            nn.Linear(72, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.layers(x)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(len(x), -1),
        lambda x: x.reshape(int(x.shape[0]), -1),
        lambda x: x.view(x.size(0), -1),
        lambda x: torch.flatten(x, 1),
    ],
)
def test_a_reshape_by_the_size_of_the_batch(function: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    exported(*calibrated(Flattened(function)), tmp_path)


@pytest.mark.parametrize(
    "function", [lambda x: x.view(8, -1), lambda x: torch.stack([one.flatten() for one in x])]
)
def test_a_forward_for_one_batch_size_is_refused(
    function: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    model, images = calibrated(Flattened(function))
    with pytest.raises(ValueError, match=r"its forward fixes the batch size, .*; write x\.flatten\(1\)"):
        export_onnx(model, images, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


# Any state of torch


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    assert torch.get_default_dtype() == torch.float64
    torch.set_default_dtype(torch.float32)


def test_the_file_does_not_depend_on_the_state_of_torch(tmp_path: Path) -> None:
    model, images = calibrated(SmallCNN(width=4), (1, 28, 28))
    plain = export_onnx(model, images, tmp_path / "plain.onnx").read_bytes()
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    autocast = torch.autocast("cpu", torch.bfloat16)
    with autocast, torch.inference_mode(), torch.device("meta"), default_dtype():
        assert export_onnx(model, images, tmp_path / "other.onnx").read_bytes() == plain
    with autocast:
        assert verify(model, plain, images).off.within == len(images)
        assert IntegerModel(model, (1, 28, 28)).compare(images).logits.within == len(images)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_model_in_another_dtype_is_exported_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    model, images = calibrated(SmallCNN(width=4), (1, 28, 28))
    exported(model.to(dtype), images.to(dtype), tmp_path)
    assert {p.dtype for p in model.parameters()} == {dtype}


# Any name


def named(name: str) -> nn.Sequential:
    torch.manual_seed(0)  # some initial weights let no value through the ReLU
    net = nn.Sequential()
    for n, layer in enumerate((nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))):
        net.add_module(name * (n + 1), layer)
    return net


@pytest.mark.parametrize("name", ["a*/ int evil(void){return 1;} /*", "input", "é漢"])
def test_a_printable_name(name: str, tmp_path: Path) -> None:
    exported(*calibrated(named(name)), tmp_path, run="runs/\udcff")


@pytest.mark.parametrize("name", ["a\nb", "'", '"', "\\", "\0", "\ud800", "\u202e"])
def test_a_name_that_is_no_part_of_code_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="must be of printable characters without quotes and backslashes; rename"
    ):
        exported(*calibrated(named(name)), tmp_path)


class Offset(nn.Module):
    """Has a parameter of the name that the file's input gets."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.layer = nn.Parameter(torch.ones(1, 1, 1, 1)), nn.Conv2d(1, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * self.input).flatten(1)


def test_two_values_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two values of the file would be called 'input'; rename"):
        exported(*calibrated(Offset()), tmp_path)
