"""The bytes of one network at several widths, as a table."""

from dataclasses import replace
from typing import Any

import torch
from rich.table import Table
from torch import nn

from qat.export import IntegerModel, Sizes, c_sizes, npz_sizes, onnx_sizes
from qat.layers import Quantization, quantize
from qat.training.network import build_network

WIDTHS = (8, 4, 2)  # bits of weights and activations


def size_columns(settings: dict[str, Any]) -> dict[str, Sizes]:
    """The sizes of a network in float and at 8, 4 and 2 bits, in each format, by the column's name.

    Its weights are random, for they do not change the sizes; what else the run's configuration says stays,
    `first_last_bits` above all.

    Args:
        settings: the hyper-parameters of a `Classifier`.

    Raises:
        ValueError: the network has no form in integers.
    """
    shape = tuple(settings["input_shape"])
    config = Quantization(**settings["quantization"])
    example = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))

    def build() -> nn.Module:
        return build_network(settings["name"], shape, settings["classes"], settings["options"])

    columns = {"float ONNX": onnx_sizes(build(), example)}
    for bits in WIDTHS:
        own = replace(config, weight_bits=bits, activation_bits=bits, layers={})
        model = quantize(build(), own, example)
        model.train()(example)
        integers = IntegerModel(model, shape)
        columns[f"{bits} bits ONNX"] = onnx_sizes(model, example)
        columns[f"{bits} bits npz"] = npz_sizes(integers)
        columns[f"{bits} bits C"] = c_sizes(integers)
    return columns


def size_table(columns: dict[str, Sizes]) -> Table:
    """Bytes of each layer's weight, of all weights as a share of float's, and of the whole."""
    table = Table(title="bytes", title_justify="left")
    table.add_column("weights of")
    for name in columns:
        table.add_column(name, justify="right")
    sizes = list(columns.values())
    for layer in sizes[0].layers:
        table.add_row(layer, *(f"{size.layers[layer]:,}" for size in sizes))
    table.add_row("all", *(f"{size.weights:,}" for size in sizes), style="bold")
    table.add_row("of float's", *(f"{size.weights / sizes[0].weights:.3f}" for size in sizes))
    table.add_section()
    table.add_row("file (C: constants)", *(f"{size.total:,}" for size in sizes), style="bold")
    return table
