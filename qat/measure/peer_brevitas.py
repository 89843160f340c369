"""Brevitas: its activation quantizer, and networks of its layers."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

# Batches in which an activation takes a percentile before its scale is learned, 300 by default. With one, it
# is in the state of most of a training; with very many, in that of its beginning.
LEARNS, COLLECTS = 1, 10**9


def quantizers(x: Tensor, bits: int) -> dict[str, Callable[[], nn.Module]]:
    """QuantIdentity while it learns its scale, and in its first 300 batches, when it takes a percentile."""

    def make(collect: int) -> nn.Module:
        from brevitas.nn import QuantIdentity

        return QuantIdentity(bit_width=bits, collect_stats_steps=collect).to(x.device)

    return {"Brevitas, learned": partial(make, LEARNS), "Brevitas, first 300": partial(make, COLLECTS)}


def network(collect: int, model: nn.Module, images: Tensor, bits: int = 4) -> nn.Module:
    """Replace torch's layers in place by those of Brevitas, quantized where ours are; return the network.

    Weights are quantized per channel; the input and the weights of the first and last layer have 8 bits.
    Activations take a percentile in `collect` batches; `images` are not used.
    """
    from brevitas import nn as qnn
    from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerChannelFloat

    modules = dict(model.named_modules())
    layers = [name for name, module in modules.items() if isinstance(module, nn.Conv2d | nn.Linear)]
    # The last activation feeds the average pool, whose output is quantized instead.
    *activations, _ = [name for name, module in modules.items() if isinstance(module, nn.ReLU)]
    for name in activations:
        model.set_submodule(name, qnn.QuantReLU(bit_width=bits, collect_stats_steps=collect))
    for name in layers:
        layer, first_or_last = modules[name], name in (layers[0], layers[-1])
        options: dict[str, Any] = {"bias": layer.bias is not None, "weight_quant": Int8WeightPerChannelFloat}
        options["weight_bit_width"] = 8 if first_or_last else bits
        if first_or_last:  # their inputs, the images and the average pool, come from no activation
            options |= {"input_quant": Int8ActPerTensorFloat, "input_collect_stats_steps": collect}
            options["input_bit_width"] = 8 if name == layers[0] else bits
        if isinstance(layer, nn.Conv2d):
            sizes = layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding
            new = qnn.QuantConv2d(*sizes, **options)
        else:
            new = qnn.QuantLinear(layer.in_features, layer.out_features, **options)
        new.load_state_dict(layer.state_dict(), strict=False)
        model.set_submodule(name, new)
    return model
