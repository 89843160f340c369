"""Layers that integers reproduce in eval mode: BatchNorm is folded before the weight is quantized."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.folding import find_folds
from qat.layers.insert import QUANT_LAYERS
from qat.layers.layer import QuantConv2d, QuantLayer, QuantLinear
from qat.layers.specs import QuantSpec
from qat.module_state import snapshot
from qat.quantizers import Quantizer

SMALLEST_FACTOR = 2.0**-24  # of a BatchNorm: a gamma of 0 must not divide by 0
EXACT = 2**22  # the largest code of a bias; float32 sums with a larger one would be rounded


@dataclass(eq=False)
class Place:
    """A place in the tree of modules. Tools may put another module there (`convert_sync_batchnorm`)."""

    parent: nn.Module
    name: str

    @property
    def module(self) -> Any:
        """The module that is there now."""
        return getattr(self.parent, self.name)


@dataclass(eq=False)
class Fold:
    """A layer and the BatchNorm after it, which the layer absorbs."""

    layer: Place
    norm: Place


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

    # Places and not modules, so that these are not parts of this layer, and are found after a replacement.
    fold: Fold | None  # None: no BatchNorm follows
    source: Place | None  # the activation whose grid the input lies on; None: the layer's own input quantizer

    @property
    def norm(self) -> Any:
        """The BatchNorm that the layer absorbs, or None.

        A BatchNorm that took its place is absorbed as well. Raises ValueError for any other module.
        """
        if self.fold is None:
            return None
        norm = self.fold.norm.module
        if type(norm) in FOLDED and norm.running_var is not None:
            norm.__class__, norm.fold = FOLDED[type(norm)], self.fold
        if not isinstance(norm, FoldedBatchNorm):
            rule = f"a {type(self).__name__} absorbs the BatchNorm {self.fold.norm.name!r} after it"
            raise ValueError(
                f"{rule}, but that is a {type(norm).__name__} now; put a BatchNorm with statistics there"
            )
        return norm

    @property
    def external_modules(self) -> tuple[nn.Module, ...]:
        """Modules outside of this layer whose state its forward reads."""
        return () if self.fold is None else (self.norm,)

    @property
    def effective_weight(self) -> Tensor:
        """The weight that is quantized, `weight f`."""
        norm = self.norm
        return self._folded_weight(None if norm is None else _factor(norm))

    def weight_of(self, effective: Tensor) -> Tensor:
        norm = self.norm
        return effective if norm is None else effective / self._along_axis(_factor(norm), 0)

    @property
    def effective_bias(self) -> Tensor | None:
        """The bias where BatchNorm is folded; in eval mode rounded to the accumulator's grid."""
        norm = self.norm
        factor = None if norm is None else _factor(norm)
        bias = self._folded_bias(norm, factor)
        return bias if bias is None or self.training else self._rounded(bias, self._folded_weight(factor))

    def forward(self, input: Tensor) -> Tensor:
        norm = self.norm
        factor = None if norm is None else _factor(norm)
        weight = self._folded_weight(factor)
        x, codes = self.input_quantizer(input), self.weight_quantizer(weight)
        if norm is not None and factor is not None and norm.training:
            y = self.operator(x, codes, None) / self._along_axis(factor, 1)
            return y if self.bias is None else y + self._along_axis(self.bias, 1)
        bias = self._folded_bias(norm, factor)
        if bias is not None and not self.training:
            bias = self._rounded(bias, weight)
        return self.operator(x, codes, bias)

    def _folded_weight(self, factor: Tensor | None) -> Tensor:
        return self.weight if factor is None else self.weight * self._along_axis(factor, 0)

    def _folded_bias(self, norm: Any, factor: Tensor | None) -> Tensor | None:
        if factor is None:
            return self.bias
        mean = -norm.running_mean if self.bias is None else self.bias - norm.running_mean
        return mean * factor + (norm.bias if norm.affine else 0)

    def _rounded(self, bias: Tensor, weight: Tensor) -> Tensor:
        """The bias on the accumulator's grid, if both operands lie on one; `weight` is the folded one."""
        assert isinstance(self.weight_quantizer, Quantizer)
        for_input: Any = (
            self.input_quantizer if self.source is None else getattr(self.source.module, "quantizer", None)
        )
        if not (self.weight_quantizer.enabled and isinstance(for_input, Quantizer)):
            return bias
        scale = self.weight_quantizer.scale(weight).reshape(-1)
        unit = scale * for_input.scale.value
        # The scale of a channel of zeros is almost 0; a coarser unit keeps the bias within 22 bits.
        coarsest = torch.ldexp(torch.ones_like(bias), torch.frexp(bias)[1]) / EXACT
        unit = torch.maximum(unit, coarsest)
        return torch.round(bias / unit) * unit

    def _along_axis(self, x: Tensor, axis: int) -> Tensor:
        """Numbers of the output channels, shaped to broadcast along axis 0 of the weight or 1 of a batch."""
        return x.reshape(-1, *(1,) * (self.weight.dim() - 1 - axis))


class DeployableConv2d(Deployable, QuantConv2d):
    """`QuantConv2d` that absorbs the BatchNorm after it and rounds its bias."""


class DeployableLinear(Deployable, QuantLinear):
    """`QuantLinear` that absorbs the BatchNorm after it and rounds its bias."""


class FoldedBatchNorm(nn.Module):
    """Abstract base class of a BatchNorm that the layer before it absorbs; it comes before torch's class.

    In eval mode it returns its input, unless something else took the place of the layer that absorbs it.
    """

    fold: Fold

    def forward(self, input: Tensor) -> Tensor:
        layer = self.fold.layer.module
        is_absorbed = isinstance(layer, Deployable) and layer.fold is self.fold
        return input if is_absorbed and not self.training else super().forward(input)


class FoldedBatchNorm1d(FoldedBatchNorm, nn.BatchNorm1d):
    """A `FoldedBatchNorm` of vectors."""


class FoldedBatchNorm2d(FoldedBatchNorm, nn.BatchNorm2d):
    """A `FoldedBatchNorm` of images."""


class FoldedSyncBatchNorm(FoldedBatchNorm, nn.SyncBatchNorm):
    """A `FoldedBatchNorm` whose statistics are those of all ranks."""


Kinds = dict[type[nn.Module], type[nn.Module]]
DEPLOYABLE: Kinds = {QuantConv2d: DeployableConv2d, QuantLinear: DeployableLinear}
FOLDED: Kinds = {
    nn.BatchNorm1d: FoldedBatchNorm1d,
    nn.BatchNorm2d: FoldedBatchNorm2d,
    nn.SyncBatchNorm: FoldedSyncBatchNorm,
}


def _factor(norm: Any) -> Tensor:
    """f. It has a gradient for gamma only in eval mode of the BatchNorm; in training mode f cancels."""
    variance = norm.running_var
    if norm.training and torch.compiler.is_compiling():
        variance = snapshot(variance)  # BatchNorm changes it before the backward
    factor = (variance + norm.eps).rsqrt()
    if norm.affine:
        factor = factor * (norm.weight.detach() if norm.training else norm.weight)
    return torch.where(factor.abs() < SMALLEST_FACTOR, SMALLEST_FACTOR, factor)


def plan_absorbing(model: nn.Module, args: tuple[Any, ...], specs: Sequence[QuantSpec]) -> dict[str, str]:
    """Layer name -> the BatchNorm that it shall absorb; the float model stays as it is.

    Raises:
        ValueError: a BatchNorm folds into no layer, or a layer is of a kind that integers do not reproduce.
    """
    for spec in specs:
        kind = type(model.get_submodule(spec.name))
        if QUANT_LAYERS[kind] not in DEPLOYABLE:
            rule = f"deployable knows Conv2d and Linear, but {spec.name} is a {kind.__name__}"
            raise ValueError(f"{rule}; use one of them, or leave deployable out")
    found = find_folds(model, args)
    for name, why in found.kept.items():
        rule = f"deployable needs every BatchNorm folded, but {name} cannot be: {why}"
        raise ValueError(f"{rule}; put it directly after a convolution or linear layer, or leave it out")
    return {layer: norm for norm, layer in found.folded.items()}


def absorb_batchnorm(model: nn.Module, norms: Mapping[str, str], specs: Sequence[QuantSpec]) -> None:
    """Let the layers of a quantized model absorb their BatchNorm; `norms` is what `plan_absorbing` found."""

    def place(name: str) -> Place:
        parent, _, own = name.rpartition(".")
        return Place(model.get_submodule(parent), own)

    for spec in specs:
        layer: Any = model.get_submodule(spec.name)
        layer.__class__ = DEPLOYABLE[type(layer)]
        layer.source = place(spec.source) if spec.source else None
        if isinstance(layer.weight_quantizer, Quantizer):
            layer.weight_quantizer.scale.kind += " of a deployable layer"  # another weight is quantized
        layer.fold = Fold(place(spec.name), place(norms[spec.name])) if spec.name in norms else None
        assert layer.norm is None or isinstance(layer.norm, FoldedBatchNorm)  # it is absorbed now
