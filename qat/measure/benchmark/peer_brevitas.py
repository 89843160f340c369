"""Brevitas: its activation quantizer, and networks made of its layers."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from qat.measure.benchmark.both_ways import Function, peer
from qat.measure.benchmark.candidate import Candidate

PACKAGE = "brevitas"
# Batches of which an activation takes a percentile before its scale is learned, 300 by default. With one it
# is in the state that a training is in nearly always; with very many, in that of its beginning.
LEARNS, COLLECTS = 1, 10**9


def quantizers(x: Tensor, g: Tensor, bits: int) -> list[Candidate]:
    """QuantIdentity while it learns its scale, and in its first 300 batches, when it takes a percentile."""
    makers: dict[str, Callable[[], Function]] = {
        "Brevitas, learned": lambda: _activation("QuantIdentity", bits, LEARNS).to(x.device),
        "Brevitas, first 300": lambda: _activation("QuantIdentity", bits, COLLECTS).to(x.device),
    }
    return [peer(name, make, x, g, PACKAGE) for name, make in makers.items()]


def network(model: nn.Module, bits: int, collect: int) -> nn.Module:
    """The network with Brevitas' layers for torch's, quantized where ours is.

    Weights by channel; 8 bits for the input, the first and the last layer's weights.

    Args:
        model: is changed in place.
        bits: of the other weights and activations.
        collect: batches of which activations take a percentile.
    """
    from brevitas import nn as qnn
    from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerChannelFloat

    layers = [name for name, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    # The last activation feeds the average pool, and what comes out of that is quantized.
    *activations, _ = [name for name, m in model.named_modules() if isinstance(m, nn.ReLU)]
    for name, module in list(model.named_modules()):
        new: nn.Module
        if name in activations:
            new = _activation("QuantReLU", bits, collect)
        elif name in layers:
            ends = name in (layers[0], layers[-1])
            options: dict[str, Any] = {
                "bias": module.bias is not None,
                "weight_quant": Int8WeightPerChannelFloat,
                "weight_bit_width": 8 if ends else bits,
            }
            if ends:  # their inputs come from no activation: the images, and the average pool
                options |= {
                    "input_quant": Int8ActPerTensorFloat,
                    "input_bit_width": 8 if name == layers[0] else bits,
                    "input_collect_stats_steps": collect,
                }
            if isinstance(module, nn.Conv2d):
                new = qnn.QuantConv2d(
                    module.in_channels,
                    module.out_channels,
                    module.kernel_size,
                    stride=module.stride,
                    padding=module.padding,
                    **options,
                )
            else:
                new = qnn.QuantLinear(module.in_features, module.out_features, **options)
            new.load_state_dict(module.state_dict(), strict=False)
        else:
            continue
        model.set_submodule(name, new)
    return model


def _activation(kind: str, bits: int, collect: int) -> nn.Module:
    from brevitas import nn as qnn

    return getattr(qnn, kind)(bit_width=bits, collect_stats_steps=collect)
