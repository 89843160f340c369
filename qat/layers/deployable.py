"""Layers that integers reproduce in eval mode: BatchNorm is folded before the weight is quantized."""

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qat.layers.conv import QuantConv2d
from qat.layers.folding import fold_batchnorm
from qat.layers.layer import QuantLayer
from qat.layers.linear import QuantLinear
from qat.quantizers import Quantizer

SMALLEST_FACTOR = 2.0**-24  # of a BatchNorm: a gamma of 0 must not divide by 0
EXACT = 2**22  # codes of a bias: above, no float32 sum with it is exact


class Deployable(QuantLayer):
    """Abstract: a layer that absorbs the BatchNorm behind it and keeps its bias on the accumulator's grid.

    With f = gamma / sqrt(running variance + eps) the weight in use is `quantize(weight f)`. In eval mode,
    or where the BatchNorm alone is (frozen statistics), the layer gives `conv(x, quantize(weight f)) + b`
    with `b = (bias - mean) f + beta`, and the BatchNorm passes its input on. In training the BatchNorm
    normalises `conv(x, quantize(weight f)) / f + bias` by the batch, as if nothing were folded.

    In eval mode b is rounded to `scale of input * scale of weight`, the grid of the layer's sums, so that an
    integer accumulator holds it. With scales that are powers of two and sums below 2^24 float32 then
    computes the layer without any rounding, in whatever order.

    Attributes:
        norms: the BatchNorm that is folded, or nothing.
        sources: the quantizer on whose grid the input lies.
        Both are in tuples: they are parts of the model, not of this layer, and have their keys there.

    Source: Jacob et al. 2018, "Quantization and training of neural networks", section 3.2;
    Krishnamoorthi 2018, section 3.2.2 (the division by f in training).
    """

    trailing: ClassVar[int] = 0  # axes of the output behind the channels
    norms: tuple[nn.Module, ...]
    sources: tuple[Quantizer, ...]
    weight: Any  # torch's parameters, declared by each kind of layer in its own way
    bias: Any

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What torch's layer computes of these."""
        raise NotImplementedError

    @property
    def reads(self) -> tuple[nn.Module, ...]:
        """Modules outside of this one whose state its training forward reads."""
        return self.norms

    @property
    def effective_weight(self) -> Tensor:
        """The weight that is quantized, `weight f`."""
        if not self.norms:
            return cast(Tensor, self.weight)
        return cast(Tensor, self.weight * self._factor().reshape(-1, *(1,) * (self.weight.dim() - 1)))

    @property
    def effective_bias(self) -> Tensor | None:
        """The bias in use where BatchNorm is folded; in eval mode rounded to the accumulator's grid."""
        bias = self._folded_bias()
        assert isinstance(self.weight_quantizer, Quantizer)
        if bias is None or self.training or not self.weight_quantizer.enabled:
            return bias
        scale = self.weight_quantizer.scale(self.effective_weight).reshape(-1)
        unit = scale * self.sources[0].scale.value
        # A channel of zeros has a scale near 0; its bias keeps 22 bits all the same.
        coarsest = torch.ldexp(torch.ones_like(bias), torch.frexp(bias)[1]) / EXACT
        unit = torch.maximum(unit, coarsest)
        return torch.round(bias / unit) * unit

    def forward(self, input: Tensor) -> Tensor:
        x = self.input_quantizer(input)
        weight = self.weight_quantizer(self.effective_weight)
        if not self._normalises():
            return self.product(x, weight, self.effective_bias)
        y = self.product(x, weight, None) / self._along_channels(self._factor())
        return y if self.bias is None else y + self._along_channels(self.bias)

    def _normalises(self) -> bool:
        return bool(self.norms) and self.norms[0].training

    def _factor(self) -> Tensor:
        """f, with a gradient for gamma only where BatchNorm is folded; it cancels where it normalises."""
        norm: Any = self.norms[0]
        factor = (norm.running_var + norm.eps).rsqrt()
        if norm.affine:
            factor = factor * (norm.weight.detach() if norm.training else norm.weight)
        return torch.where(factor.abs() < SMALLEST_FACTOR, SMALLEST_FACTOR, factor)

    def _folded_bias(self) -> Tensor | None:
        if not self.norms:
            return cast("Tensor | None", self.bias)
        norm: Any = self.norms[0]
        mean = -norm.running_mean if self.bias is None else self.bias - norm.running_mean
        return cast(Tensor, mean * self._factor() + (norm.bias if norm.affine else 0))

    def _along_channels(self, x: Tensor) -> Tensor:
        return x.reshape(-1, *(1,) * self.trailing)


class DeployableConv2d(Deployable, QuantConv2d):
    """`QuantConv2d` with the BatchNorm behind it folded, and its bias on the accumulator's grid."""

    trailing: ClassVar[int] = 2

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._conv_forward(x, weight, bias)


class DeployableLinear(Deployable, QuantLinear):
    """`QuantLinear`, the same."""

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)


class FoldedBatchNorm1d(nn.BatchNorm1d):
    """Normalises in training mode; in eval mode the layer before has absorbed it, and it passes x on."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if self.training else input


class FoldedBatchNorm2d(nn.BatchNorm2d):
    """The same for images."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) if self.training else input


DEPLOYABLE: dict[type[nn.Module], type[Deployable]] = {
    QuantConv2d: DeployableConv2d,
    QuantLinear: DeployableLinear,
}
FOLDED: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: FoldedBatchNorm1d,
    nn.BatchNorm2d: FoldedBatchNorm2d,
}


def find_folds(model: nn.Module, args: tuple[Any, ...]) -> dict[str, str]:
    """The layer that each BatchNorm of a float model folds into, by name.

    Raises:
        ValueError: one does not fold.
    """
    done = fold_batchnorm(copy.deepcopy(model), args)
    for name, why in done.kept.items():
        raise ValueError(f"deployable needs every BatchNorm folded, but {name} cannot be: {why}")
    return {layer: norm for norm, layer in done.folded.items()}


def make_deployable(model: nn.Module, folds: Mapping[str, str], sources: Mapping[str, Quantizer]) -> None:
    """Let the quantized layers absorb their BatchNorm, in place.

    Args:
        model: just quantized.
        folds: the BatchNorm of each layer that has one, by name.
        sources: on whose grid the input of each layer lies.

    Raises:
        ValueError: a layer is of a kind that integers cannot reproduce yet.
    """
    layers: dict[str, Any] = {name: model.get_submodule(name) for name in sources}
    for name, layer in layers.items():
        if type(layer) not in DEPLOYABLE:
            known = " and ".join(kind.__name__ for kind in DEPLOYABLE)
            raise ValueError(f"deployable knows {known}, but {name} is a {type(layer).__name__}")
    for name, layer in layers.items():
        norms = [model.get_submodule(folds[name])] if name in folds else []
        layer.__class__ = DEPLOYABLE[type(layer)]
        layer.norms, layer.sources = tuple(norms), (sources[name],)
        for norm in norms:
            norm.__class__ = FOLDED[type(norm)]
