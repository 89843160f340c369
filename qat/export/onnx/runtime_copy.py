"""A copy of a model whose quantizers are ONNX's own operators."""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from qat.export.onnx.operators import QuantizeDequantize, StoredWeight
from qat.layers import QuantLayer, fold_batchnorm
from qat.layers.activation import QUANT_ACTIVATIONS, QuantActivation
from qat.layers.deployable import DEPLOYABLE, FOLDED, Deployable
from qat.layers.insert import QUANT_LAYERS
from qat.quantizers import Quantizer


@torch.no_grad()
def runtime_copy(model: nn.Module, args: tuple[Any, ...], opset: int, fold: bool) -> nn.Module:
    """A copy on the CPU, in eval mode and float32, that computes with ONNX's operators.

    Args:
        model: a quantized model that is ready, or a float one; it stays unchanged.
        args: an example of its arguments.
        opset: decides how narrow the integer types may be.
        fold: whether each BatchNorm is folded into the layer before it, its factor into the weight's scale.
    """
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    for name, module in list(model.named_modules()):
        if isinstance(module, QuantLayer):
            _store_weight(module, opset)
        elif isinstance(module, QuantActivation):
            quantizer = module.quantizer
            del module.quantizer
            parts = {"activation": _to_base_class(module, QUANT_ACTIVATIONS), "quantizer": quantizer}
            model.set_submodule(name, nn.Sequential(OrderedDict(parts)))
        elif isinstance(module, tuple(FOLDED.values())):
            model.set_submodule(name, nn.Identity())
    for name, module in list(model.named_modules()):
        if isinstance(module, Quantizer):
            model.set_submodule(name, QuantizeDequantize(module, opset))
    for layer, norm in (_foldable_norms(model, args) if fold else {}).items():
        _fold(model.get_submodule(layer), model.get_submodule(norm))
        model.set_submodule(norm, nn.Identity())
    return model


def _store_weight(layer: Any, opset: int) -> None:
    weight = StoredWeight(layer, opset) if isinstance(layer.weight_quantizer, Quantizer) else None
    if isinstance(layer, Deployable):
        bias = layer.effective_bias
        _to_base_class(layer, DEPLOYABLE)
        layer.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        layer.norms, layer.sources = (), ()
    if weight is not None:
        layer.weight_quantizer = weight


def _to_base_class(module: nn.Module, converted: Mapping[type, type]) -> nn.Module:
    """Undo a change of class. `converted`: base class -> the class that `quantize` changed it to."""
    bases = {kind: base for base, kind in converted.items()}
    module.__class__ = next(bases[kind] for kind in type(module).__mro__ if kind in bases)
    return module


def _foldable_norms(model: nn.Module, args: tuple[Any, ...]) -> dict[str, str]:
    """The name of each quantized layer that a BatchNorm folds into -> the BatchNorm's."""
    plain = copy.deepcopy(model)
    for name, module in list(plain.named_modules()):
        if isinstance(module, QuantizeDequantize | StoredWeight):
            plain.set_submodule(name, nn.Identity())
        elif type(module) in QUANT_LAYERS.values():
            _to_base_class(module, QUANT_LAYERS)
    return {
        layer: norm
        for norm, layer in fold_batchnorm(plain, args).folded.items()
        if isinstance(getattr(model.get_submodule(layer), "weight_quantizer", None), StoredWeight)
    }


def _fold(layer: Any, norm: Any) -> None:
    factor = (norm.running_var.double() + norm.eps).rsqrt()
    factor = factor * norm.weight.double() if norm.affine else factor
    bias = torch.zeros_like(factor) if layer.bias is None else layer.bias.double()
    bias = (bias - norm.running_mean.double()) * factor + (norm.bias.double() if norm.affine else 0)
    layer.bias = nn.Parameter(bias.float(), requires_grad=False)
    layer.weight_quantizer.multiply(factor)
