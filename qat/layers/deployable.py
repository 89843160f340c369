"""Layers that integers reproduce in eval mode: BatchNorm is folded before the weight is quantized."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.folding import fold_batchnorm
from qat.layers.layer import QuantConv2d, QuantLayer, QuantLinear
from qat.layers.specs import QuantSpec
from qat.quantizers import Quantizer

SMALLEST_FACTOR = 2.0**-24  # of a BatchNorm: a gamma of 0 must not divide by 0
EXACT = 2**22  # the largest code of a bias; float32 sums with a larger one would be rounded


class Deployable(QuantLayer):
    """Abstract base class of a layer that absorbs the BatchNorm after it and rounds its bias.

    With f = gamma / sqrt(running variance + eps) the effective weight is `quantize(weight f)`. In eval mode,
    or where only the BatchNorm is in eval mode (frozen statistics), the layer computes
    `conv(x, quantize(weight f)) + b` with `b = (bias - mean) f + beta`, and the BatchNorm returns its input.
    In training the layer computes `conv(x, quantize(weight f)) / f + bias`, and the BatchNorm normalizes this
    with the statistics of the batch, as if nothing were folded.

    In eval mode b is rounded to a multiple of `scale of input * scale of weight`, the grid of the layer's
    sums, so an integer accumulator can hold it. With scales that are powers of two and sums below 2^24,
    float32 then computes the layer without any rounding, in any order of summation.

    Source: Jacob et al. 2018, "Quantization and training of neural networks", section 3.2;
    Krishnamoorthi 2018, section 3.2.2 (the division by f in training).
    """

    # In tuples, so that these modules are not registered as parts of this layer and keep their own keys.
    norms: tuple[nn.Module, ...]  # the folded BatchNorm, or empty
    sources: tuple[Quantizer, ...]  # the quantizer whose grid the input lies on

    @property
    def external_modules(self) -> tuple[nn.Module, ...]:
        """Modules outside of this layer whose state its forward reads."""
        return self.norms

    @property
    def effective_weight(self) -> Tensor:
        """The weight that is quantized, `weight f`."""
        if not self.norms:
            return self.weight
        return self.weight * self._along_axis(self._factor(), 0)

    @property
    def effective_bias(self) -> Tensor | None:
        """The bias where BatchNorm is folded; in eval mode rounded to the accumulator's grid."""
        bias = self.bias
        if self.norms:
            norm: Any = self.norms[0]
            mean = -norm.running_mean if bias is None else bias - norm.running_mean
            bias = mean * self._factor() + (norm.bias if norm.affine else 0)
        assert isinstance(self.weight_quantizer, Quantizer)
        if bias is None or self.training or not self.weight_quantizer.enabled:
            return bias
        scale = self.weight_quantizer.scale(self.effective_weight).reshape(-1)
        unit = scale * self.sources[0].scale.value
        # The scale of a channel of zeros is almost 0; a coarser unit keeps the bias within 22 bits.
        coarsest = torch.ldexp(torch.ones_like(bias), torch.frexp(bias)[1]) / EXACT
        unit = torch.maximum(unit, coarsest)
        return torch.round(bias / unit) * unit

    def forward(self, input: Tensor) -> Tensor:
        if not (self.norms and self.norms[0].training):
            return super().forward(input)
        weight = self.weight_quantizer(self.effective_weight)
        y = self.operator(self.input_quantizer(input), weight, None) / self._along_axis(self._factor(), 1)
        return y if self.bias is None else y + self._along_axis(self.bias, 1)

    def _factor(self) -> Tensor:
        """f. It has a gradient for gamma only in eval mode of the BatchNorm; in training mode f cancels."""
        norm: Any = self.norms[0]
        factor = (norm.running_var + norm.eps).rsqrt()
        if norm.affine:
            factor = factor * (norm.weight.detach() if norm.training else norm.weight)
        return torch.where(factor.abs() < SMALLEST_FACTOR, SMALLEST_FACTOR, factor)

    def _along_axis(self, x: Tensor, axis: int) -> Tensor:
        """Numbers of the output channels, shaped to broadcast along axis 0 of the weight or 1 of a batch."""
        return x.reshape(-1, *(1,) * (self.weight.dim() - 1 - axis))


class DeployableConv2d(Deployable, QuantConv2d):
    """`QuantConv2d` that absorbs the BatchNorm after it and rounds its bias."""


class DeployableLinear(Deployable, QuantLinear):
    """`QuantLinear` that absorbs the BatchNorm after it and rounds its bias."""


class FoldedBatchNorm1d(nn.BatchNorm1d):
    """A BatchNorm that the layer before it absorbs: in eval mode it returns its input."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if self.training else input


class FoldedBatchNorm2d(nn.BatchNorm2d):
    """The same for images."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if self.training else input


Kinds = dict[type[nn.Module], type[nn.Module]]
DEPLOYABLE: Kinds = {QuantConv2d: DeployableConv2d, QuantLinear: DeployableLinear}
FOLDED: Kinds = {nn.BatchNorm1d: FoldedBatchNorm1d, nn.BatchNorm2d: FoldedBatchNorm2d}


def find_folds(model: nn.Module, args: tuple[Any, ...]) -> dict[str, str]:
    """Layer name -> the BatchNorm that folds into it; raises ValueError if one folds into no layer."""
    done = fold_batchnorm(copy.deepcopy(model), args)
    for name, why in done.kept.items():
        raise ValueError(f"deployable needs every BatchNorm folded, but {name} cannot be: {why}")
    return {layer: norm for norm, layer in done.folded.items()}


def absorb_batchnorm(model: nn.Module, folds: Mapping[str, str], specs: Sequence[QuantSpec]) -> None:
    """Let the layers of a quantized model absorb their BatchNorm; `folds` is the result of `find_folds`."""
    layers: dict[str, Any] = {spec.name: model.get_submodule(spec.name) for spec in specs}
    for name, layer in layers.items():
        if type(layer) not in DEPLOYABLE:
            known = " and ".join(kind.__name__ for kind in DEPLOYABLE)
            raise ValueError(f"deployable knows {known}, but {name} is a {type(layer).__name__}")
    for spec in specs:
        layer = layers[spec.name]
        source: Any = model.get_submodule(spec.source).quantizer if spec.source else layer.input_quantizer
        layer.__class__ = DEPLOYABLE[type(layer)]
        layer.norms = (model.get_submodule(folds[spec.name]),) if spec.name in folds else ()
        layer.sources = (source,)
        for norm in layer.norms:
            norm.__class__ = FOLDED[type(norm)]
