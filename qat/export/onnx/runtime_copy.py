"""A copy of a model whose quantizers are ONNX's own operators."""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from qat.export.onnx.operators import QuantizeDequantize, StoredWeight
from qat.export.trained_model import plain_copy
from qat.layers import QuantLayer, fold_batchnorm
from qat.layers.activation import QUANT_ACTIVATIONS, QuantActivation
from qat.layers.deployable import DEPLOYABLE, Deployable, FoldedBatchNorm
from qat.layers.insert import QUANT_LAYERS
from qat.quantizers import Quantizer


def runtime_copy(model: nn.Module, args: tuple[Tensor, ...], opset: int, fold: bool) -> nn.Module:
    """A copy on the CPU, in eval mode and float32, that computes with ONNX's operators.

    With `fold` each BatchNorm that allows it becomes part of the scale and the bias of the layer before it.
    """
    model = plain_copy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, QuantLayer):
            _store_weight(name, module, opset)
        elif isinstance(module, QuantActivation):
            quantizer = module.quantizer
            del module.quantizer
            parts = {"activation": _to_base_class(module, QUANT_ACTIVATIONS), "quantizer": quantizer}
            model.set_submodule(name, nn.Sequential(OrderedDict(parts)))
    for name, module in list(model.named_modules()):
        if isinstance(module, FoldedBatchNorm):
            model.set_submodule(name, nn.Identity())
        elif isinstance(module, Quantizer):
            model.set_submodule(name, QuantizeDequantize(name, module, opset))
    if fold:
        _fold_norms(model, args)
    return model


def _store_weight(name: str, layer: Any, opset: int) -> None:
    is_stored = isinstance(layer.weight_quantizer, Quantizer)
    weight = StoredWeight(name, layer, opset) if is_stored else None
    if isinstance(layer, Deployable):
        bias = layer.effective_bias
        _to_base_class(layer, DEPLOYABLE)
        layer.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        layer.fold, layer.source = None, None
    if weight is not None:
        layer.weight_quantizer = weight


def _to_base_class(module: nn.Module, converted: Mapping[type, type]) -> nn.Module:
    """Undo a change of class. `converted`: base class -> the class that `quantize` changed it to."""
    bases = {kind: base for base, kind in converted.items()}
    module.__class__ = next(bases[kind] for kind in type(module).__mro__ if kind in bases)
    return module


def _fold_norms(model: nn.Module, args: tuple[Tensor, ...]) -> None:
    """Take each BatchNorm that folds in a float copy into the codes' scale and the bias of its layer."""
    floats = copy.deepcopy(model)
    for name, module in list(floats.named_modules()):
        if isinstance(module, QuantizeDequantize | StoredWeight):
            floats.set_submodule(name, nn.Identity())
        elif type(module) in QUANT_LAYERS.values():
            _to_base_class(module, QUANT_LAYERS)
    for name, folded in fold_batchnorm(floats, args).folded.items():
        layer: Any = model.get_submodule(folded)
        norm: Any = model.get_submodule(name)
        if isinstance(getattr(layer, "weight_quantizer", None), StoredWeight):
            factor = (norm.running_var.double() + norm.eps).rsqrt()
            factor = factor * norm.weight.double() if norm.affine else factor
            layer.weight_quantizer.multiply(_along_codes(layer, factor).numpy())
            layer.bias = floats.get_submodule(folded).bias
            model.set_submodule(name, nn.Identity())


def _along_codes(layer: Any, factor: Tensor) -> Tensor:
    """The factors of the output channels in a shape that broadcasts against the codes of a weight."""
    shape = [1] * layer.weight.dim()
    shape[layer.channel_axis] = -1
    return factor.reshape(shape)
