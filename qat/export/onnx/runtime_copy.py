"""A copy of a model whose quantizers are ONNX's own operators."""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.onnx import ops

from qat.export.integers.integer_types import IntegerType, type_for
from qat.export.onnx.checks import scale_of
from qat.layers import QuantLayer, fold_batchnorm
from qat.layers.activation import QUANT_ACTIVATIONS, QuantActivation
from qat.layers.deployable import DEPLOYABLE, FOLDED, Deployable
from qat.layers.insert import QUANT_LAYERS
from qat.quantizers import Quantizer


class QuantizeDequantize(nn.Module):
    """QuantizeLinear, then DequantizeLinear; before them a Clip where the type holds more than the grid."""

    def __init__(self, quantizer: Quantizer, opset: int) -> None:
        super().__init__()
        grid, scale = quantizer.grid, scale_of(quantizer)
        zero_point = quantizer.scale.zero_point(scale)
        self.kind: IntegerType = type_for(grid, opset)
        self.zero = 0 if zero_point is None else int(zero_point)
        wider = (self.kind.low, self.kind.high) != (grid.low, grid.high)
        ends = [float((end - self.zero) * scale) for end in (grid.low, grid.high)]
        self.clip = ends if wider else None
        self.scale: Tensor
        self.zero_point: Tensor
        self.register_buffer("scale", scale.clone())
        self.register_buffer("zero_point", torch.tensor(self.zero, dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        if self.clip:
            x = x.clamp(*self.clip)
        # Written as 8 bits; `onnx.py` puts the type in when torch is done, for it knows no narrower ones.
        codes = ops.symbolic(
            "QuantizeLinear", (x, self.scale, self.zero_point), dtype=torch.uint8, shape=x.shape, version=21
        )
        return ops.symbolic(
            "DequantizeLinear",
            (codes, self.scale, self.zero_point),
            dtype=torch.float32,
            shape=x.shape,
            version=21,
        )


class Stored(nn.Module):
    """DequantizeLinear of codes that are constants: what becomes of a weight's quantizer."""

    def __init__(self, layer: QuantLayer, opset: int) -> None:
        super().__init__()
        quantizer, weight = layer.weight_quantizer, layer.effective_weight.detach()
        assert isinstance(quantizer, Quantizer)
        scale = quantizer.scale(weight).detach()
        self.kind: IntegerType = type_for(quantizer.grid, opset)
        self.codes: NDArray[np.int64] = quantizer.codes(weight).numpy().astype(np.int64)
        self.axis = layer.channel_axis if scale.dim() else None
        self.scale: Tensor
        self.place: Tensor
        self.register_buffer("scale", scale.reshape(-1) if scale.dim() else scale.clone())
        self.register_buffer("place", torch.zeros(weight.shape, dtype=torch.int8))

    def forward(self, weight: Tensor) -> Tensor:
        return ops.symbolic(
            "DequantizeLinear",
            (self.place, self.scale),
            attrs={} if self.axis is None else {"axis": self.axis},
            dtype=torch.float32,
            shape=weight.shape,
            version=21,
        )


@torch.no_grad()
def runtime_copy(model: nn.Module, args: tuple[Any, ...], opset: int, fold: bool) -> nn.Module:
    """A copy on the CPU, in eval mode and float32, that computes with ONNX's operators; the model stays.

    Args:
        model: quantized and ready, or float.
        args: an example of its arguments.
        opset: decides how narrow the types may be.
        fold: whether a BatchNorm is folded into the layer before it, its factor into the weight's scale.
    """
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    for name, module in list(model.named_modules()):
        if isinstance(module, QuantLayer):
            _store_weight(module, opset)
        elif isinstance(module, tuple(FOLDED.values())):
            _put(model, name, nn.Identity())
    for layer, norm in (_folds(model, args) if fold else {}).items():
        _fold(model.get_submodule(layer), model.get_submodule(norm))
        _put(model, norm, nn.Identity())
    float_kinds = {kind: base for base, kind in QUANT_ACTIVATIONS.items()}
    for name, module in list(model.named_modules()):
        if isinstance(module, QuantActivation):
            kind = next(kind for kind in type(module).__mro__ if kind in float_kinds)
            _put(model, name, _Activated(module, float_kinds[kind], opset))
    for name, module in list(model.named_modules()):
        if isinstance(module, Quantizer):
            _put(model, name, QuantizeDequantize(module, opset))
    return model


class _Activated(nn.Module):
    """torch's activation, then its quantizer, as two modules."""

    def __init__(self, module: QuantActivation, kind: type[nn.Module], opset: int) -> None:
        super().__init__()
        assert isinstance(module.quantizer, Quantizer)
        self.quantizer = QuantizeDequantize(module.quantizer, opset)
        module.__class__ = kind  # type: ignore[assignment] # back to its own base  # mypy takes the class of a module for final
        del module.quantizer
        self.activation = module

    def forward(self, input: Tensor) -> Tensor:
        return self.quantizer(self.activation(input))


def _store_weight(layer: Any, opset: int) -> None:
    weights = Stored(layer, opset) if isinstance(layer.weight_quantizer, Quantizer) else None
    if isinstance(layer, Deployable):
        bias = layer.effective_bias
        base: dict[type, Any] = {kind: base for base, kind in DEPLOYABLE.items()}
        layer.__class__ = next(base[kind] for kind in type(layer).__mro__ if kind in base)
        layer.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        layer.norms, layer.sources = (), ()
    if weights is not None:
        layer.weight_quantizer = weights


def _folds(model: nn.Module, args: tuple[Any, ...]) -> dict[str, str]:
    """The BatchNorm that folds into each quantized layer, by name."""
    plain = copy.deepcopy(model)
    bases = {kind: base for base, kind in QUANT_LAYERS.items()}
    for module in plain.modules():
        if isinstance(module, QuantLayer) and type(module) in bases:
            module.__class__ = bases[type(module)]  # type: ignore[assignment]
    for name, module in list(plain.named_modules()):
        if isinstance(module, Quantizer | Stored):
            _put(plain, name, _Pass())
    done = fold_batchnorm(plain, args)
    quantized = {
        name for name, m in model.named_modules() if isinstance(getattr(m, "weight_quantizer", 0), Stored)
    }
    return {layer: norm for norm, layer in done.folded.items() if layer in quantized}


class _Pass(nn.Module):
    def forward(self, x: Tensor, **_: Any) -> Tensor:
        return x


def _fold(layer: Any, norm: Any) -> None:
    """The factor goes into the scale of each channel, its sign into the codes; the offset into the bias."""
    factor = (norm.running_var.double() + norm.eps).rsqrt()
    factor = factor * norm.weight.double() if norm.affine else factor
    bias = torch.zeros_like(factor) if layer.bias is None else layer.bias.double()
    bias = (bias - norm.running_mean.double()) * factor + (norm.bias.double() if norm.affine else 0)
    layer.bias = nn.Parameter(bias.float(), requires_grad=False)
    stored: Stored = layer.weight_quantizer
    sign = np.where(factor.numpy() < 0, -1, 1)
    stored.codes = stored.codes * sign.reshape(-1, *(1,) * (stored.codes.ndim - 1))
    stored.scale = (stored.scale.double() * factor.abs()).float()
    stored.axis = 0


def _put(model: nn.Module, name: str, new: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, new)
