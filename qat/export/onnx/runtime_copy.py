"""A copy of a model whose quantizers are ONNX's own operators."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from qat.export.onnx.operators import QuantizeDequantize, StoredWeight
from qat.layers import QuantLayer, fold_batchnorm
from qat.layers.activation import QUANT_ACTIVATIONS, QuantActivation
from qat.layers.convert import QUANT_LAYERS
from qat.layers.deployable import DEPLOYABLE, FOLDED, Deployable
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
        elif isinstance(module, tuple(FOLDED.values())):
            model.set_submodule(name, nn.Identity())
    for layer, norm in (_foldable_norms(model, args) if fold else {}).items():
        _fold(model.get_submodule(layer), model.get_submodule(norm))
        model.set_submodule(norm, nn.Identity())
    for name, module in list(model.named_modules()):
        if isinstance(module, QuantActivation):
            model.set_submodule(name, _ActivationThenQuantizer(module, opset))
    for name, module in list(model.named_modules()):
        if isinstance(module, Quantizer):
            model.set_submodule(name, QuantizeDequantize(module, opset))
    return model


class _ActivationThenQuantizer(nn.Module):
    """torch's activation and its quantizer as two modules."""

    def __init__(self, module: QuantActivation, opset: int) -> None:
        super().__init__()
        assert isinstance(module.quantizer, Quantizer)
        self.quantizer = QuantizeDequantize(module.quantizer, opset)
        _back_to_base(module, QUANT_ACTIVATIONS)
        del module.quantizer
        self.activation = module

    def forward(self, input: Tensor) -> Tensor:
        return self.quantizer(self.activation(input))


class _PassThrough(nn.Module):
    """Returns its input; unlike `nn.Identity` it takes keywords."""

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        return x


def _store_weight(layer: Any, opset: int) -> None:
    weight = StoredWeight(layer, opset) if isinstance(layer.weight_quantizer, Quantizer) else None
    if isinstance(layer, Deployable):
        bias = layer.effective_bias
        _back_to_base(layer, DEPLOYABLE)
        layer.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        layer.norms, layer.sources = (), ()
    if weight is not None:
        layer.weight_quantizer = weight


def _back_to_base(module: nn.Module, converted: Any) -> None:
    """Undo a change of class. `converted`: base class -> the class that a module of it was given."""
    bases = {kind: base for base, kind in converted.items()}
    module.__class__ = next(bases[kind] for kind in type(module).__mro__ if kind in bases)


def _foldable_norms(model: nn.Module, args: tuple[Any, ...]) -> dict[str, str]:
    """The name of each quantized layer that a BatchNorm folds into -> the BatchNorm's."""
    plain = copy.deepcopy(model)
    for name, module in list(plain.named_modules()):
        if isinstance(module, Quantizer | StoredWeight):
            plain.set_submodule(name, _PassThrough())
        elif isinstance(module, QuantLayer) and type(module) in QUANT_LAYERS.values():
            _back_to_base(module, QUANT_LAYERS)
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
