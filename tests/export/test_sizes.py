"""Bytes by layer and format."""

from typing import Any

from qat.export import IntegerModel, c_sizes, npz_sizes, onnx_sizes
from qat.models import ResNet8


def test_weights_take_their_share_of_float_bytes(trained: Any) -> None:
    bits = {"blocks.0.conv1": 2, "blocks.0.conv2": 2, "fc": 8}
    layers = {name: {"weight_bits": own} for name, own in bits.items()}
    model, images = trained("resnet8", first_last_bits=4, layers=layers)
    floats = {name: 4 * p.numel() for name, p in ResNet8((3, 16, 16)).named_parameters()}
    integers = IntegerModel(model, (3, 16, 16))
    for sizes in (onnx_sizes(model, images[:2]), npz_sizes(integers), c_sizes(integers)):
        assert len(sizes.layers) == 10
        for layer, size in sizes.layers.items():
            own = bits.get(layer, 4)
            assert own / 32 <= size / floats[f"{layer}.weight"] <= {2: 0.07, 4: 0.13, 8: 0.26}[own]
        assert sizes.weights < sizes.total
