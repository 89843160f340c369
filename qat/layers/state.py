"""The quantized state of a model: codes of weights, frozen scales, learned scales."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from qat.layers.layer import QuantLayer
from qat.quantizers import IntGrid, Quantizer, Scale, follows_formula


class WeightCodes(NamedTuple):
    """A weight as integers: `(codes - zero_point) * scale` is the quantized weight, bit for bit.

    In half precision the weight is this product, cast to its dtype.
    """

    codes: Tensor  # int32, in the shape of the layer's weight
    scale: Tensor  # float32 (float64 for a weight in float64); it broadcasts against the codes
    zero_point: int  # 0: the grids of weights are symmetric


@torch.no_grad()
def weight_codes(layer: nn.Module) -> WeightCodes:
    """The codes of a quantized layer's weight, with its current scale; no state changes.

    Those of a deployable layer are the codes of the weight into which its BatchNorm is folded.

    Raises:
        ValueError: the layer has no quantizer for its weight, a user-defined one of which no codes are known,
            or one that is not enabled.
    """
    quantizer = getattr(layer, "weight_quantizer", None)
    if not isinstance(layer, QuantLayer) or not isinstance(quantizer, Quantizer):
        got = f"a {type(layer).__name__}" + (f" with a {type(quantizer).__name__}" if quantizer else "")
        raise ValueError(f"weight_codes needs a layer whose weight_quantizer is a Quantizer, got {got}")
    if not follows_formula(quantizer):
        rule = "weight_codes needs a weight_quantizer without a forward of its own"
        raise ValueError(f"{rule}, got a {type(quantizer).__name__}")
    if not quantizer.enabled:
        raise ValueError(
            "weight_codes needs an enabled weight_quantizer; in a float phase the weight is float"
        )
    weight, training = layer.effective_weight, quantizer.training
    quantizer.eval()  # so that a dynamic scale is measured on the weight
    try:
        codes, scale = quantizer.codes(weight), quantizer.scale(weight).detach()
    finally:
        quantizer.train(training)
    if layer.own_form(codes).shape != codes.shape or not torch.equal(layer.own_form(codes), codes):
        scale = layer.own_form(scale.expand_as(codes))
    dtype = torch.promote_types(weight.dtype, scale.dtype)
    return WeightCodes(layer.own_form(codes), scale.to(dtype, copy=True), 0)


def freeze(model: nn.Module) -> None:
    """Freeze the scales of all quantizers of a model: no batch, no weight and no optimizer changes them.

    Those of the weights are measured once more first, because the optimizer may have stepped since the last
    forward. A user-defined quantizer that is no `Quantizer` stays as it is.

    Raises:
        ValueError: the model holds no `Quantizer`.
    """
    _check_any(model)
    for module in model.modules():
        if isinstance(module, QuantLayer) and isinstance(module.weight_quantizer, Quantizer):
            module.weight_quantizer.observe(module.effective_weight)
        if isinstance(module, Quantizer):
            module.freeze()


def unfreeze(model: nn.Module) -> None:
    """Undo `freeze` for all quantizers of a model; raises ValueError as `freeze`."""
    _check_any(model)
    for module in model.modules():
        if isinstance(module, Quantizer):
            module.unfreeze()


def _check_any(model: nn.Module) -> None:
    if not any(isinstance(module, Quantizer) for module in model.modules()):
        raise ValueError("the model holds no Quantizer, so it has no scale to freeze; call quantize first")


def scale_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The learned scales of a model, each once, for a parameter group of their own.

    They should have no weight decay, and often a lower learning rate than the weights.
    """
    found: list[nn.Parameter] = []
    for module in model.modules():
        own = getattr(module, "scale", None)
        if isinstance(module, Scale):
            found += module.parameters()
        elif isinstance(own, nn.Parameter) and isinstance(getattr(module, "grid", None), IntGrid):
            found.append(own)  # of a user-defined quantizer
    return list(dict.fromkeys(found))
