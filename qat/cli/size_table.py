"""A table of the bytes that a run's network takes in several formats."""

from functools import partial
from typing import Any

import torch
from rich.table import Column, Table

from qat.export import sizes_by_width
from qat.layers import Quantization
from qat.training.network import build_network
from qat.training.trained_run import TrainedRun


def size_table(run: TrainedRun) -> Table:
    """Bytes of each weight, of all weights with their share of the float network's, and of the file."""
    s: Any = run.classifier.hparams
    shape = tuple(s["input_shape"])
    example = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    build = partial(build_network, s["name"], shape, s["classes"], s["options"])
    columns = sizes_by_width(build, Quantization(**s["quantization"]), example)
    headers = (Column(name, justify="right") for name in columns)
    table = Table("weights of", *headers, title="bytes", title_justify="left")
    first, *_ = sizes = list(columns.values())
    for layer in first.layers:
        table.add_row(layer, *(f"{size.layers[layer]:,}" for size in sizes))
    table.add_row("all", *(f"{size.weights:,}" for size in sizes), style="bold")
    table.add_row("of float's", *(f"{size.weights / first.weights:.3f}" for size in sizes))
    table.add_section()
    table.add_row("file (C: constants)", *(f"{size.total:,}" for size in sizes), style="bold")
    return table
