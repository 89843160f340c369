"""Fold BatchNorm into the layer before it, for a float model that will not train its statistics further."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.example import arguments, check_model, run_example
from qat.layers.reads import Reads, listed, place_of
from qat.module_state import copy_buffers
from qat.quantizers import Quantizer

# The layers that fold, each with the dimensions of its output: one that runs without a batch, or a linear
# layer over a sequence, has its channels on another axis than BatchNorm's.
FOLDABLE: dict[type[nn.Module], int] = {
    **{nn.Linear: 2, nn.Conv1d: 3, nn.Conv2d: 4, nn.Conv3d: 5},
    **{nn.ConvTranspose1d: 3, nn.ConvTranspose2d: 4, nn.ConvTranspose3d: 5},
}
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True)
class Folding:
    """What `fold_batchnorm` did.

    Args:
        folded: the name of each BatchNorm that is gone -> the layer that it went into.
        kept: the name of each that stays -> why.
    """

    folded: dict[str, str]
    kept: dict[str, str]


def fold_batchnorm(model: nn.Module, example: Tensor | tuple[Any, ...]) -> Folding:
    """Fold BatchNorms into the convolution or linear layer before them, in place.

    With y = gamma (w x + b - mean) / sqrt(var + eps) + beta, the layer gets w f and (b - mean) f + beta,
    f = gamma / sqrt(var + eps) for each output channel (Jacob et al. 2018, section 3.2); it gets a bias if it
    had none. In eval mode the model computes the same up to rounding. The BatchNorm becomes `nn.Identity`
    and its keys vanish. What reads what is seen while the example runs once, in eval mode.

    A BatchNorm folds where its layer is a plain one of torch's, ran once, gives its output to nothing else
    (nor to an attribute that keeps it) and shares its weight or bias with no other module, and where nothing
    but the two reads their parameters, a function in the model's forward (`F.conv2d(x, self.conv.weight)`)
    for one.

    Args:
        model: a float model; fold before `quantize`.
        example: `(N, C, H, W)`, or a tuple of arguments.

    Raises:
        ValueError: the model is quantized, lazy or TorchScript, or the example does not run through it.
    """
    check_model(model)
    if any(isinstance(module, Quantizer) for module in model.modules()):
        raise ValueError("the model is quantized: fold the float model, then quantize it")
    args = arguments(example, at_least=1)
    buffers = copy_buffers(model)
    reads = Reads(
        {**dict(model.named_parameters(remove_duplicate=False)), **buffers},
        gives=lambda module: type(module) in FOLDABLE and "forward" not in vars(module),
        takes=lambda module: isinstance(module, BATCH_NORMS),
    )
    reads.note_end(run_example(model, args, buffers, False, reads, reads))
    folded: dict[str, str] = {}
    kept: dict[str, str] = {}
    for name, norm in model.named_modules():
        if isinstance(norm, BATCH_NORMS):
            layer, why = _find_layer(model, reads, name, norm)
            if why:
                kept[name] = why
            else:
                folded[name] = layer
    for name, layer in folded.items():
        _fold(model.get_submodule(layer), model.get_submodule(name))
        _vanish(model.get_submodule(name))
    return Folding(folded, kept)


def _find_layer(model: nn.Module, reads: Reads, name: str, norm: nn.Module) -> tuple[str, str]:
    """The layer that a BatchNorm folds into and, where it does not, why."""
    inputs = reads.inputs.get(name, [])
    if len(inputs) != 1:
        return "", f"it ran {len(inputs)} times on the example"
    run = inputs[0]
    if run is None:
        return "", "it does not read the output of a plain convolution or linear layer"
    layer = model.get_submodule(run.layer)
    sharers = _sharers(model, layer) - {run.layer}
    if type(norm) not in BATCH_NORMS or "forward" in vars(norm):
        return "", f"it is a {type(norm).__name__} whose forward may not be torch's"
    if norm.running_mean is None:
        return "", "it keeps no running statistics"
    if sum(other.layer == run.layer for other in reads.runs.values()) != 1:
        return "", f"{run.layer} runs more than once"
    if run.readers != {name}:
        return "", f"the output of {run.layer} is also read by {listed(run.readers - {name})}"
    if sharers:
        return "", f"{run.layer} shares its weight or bias with {listed(sharers)}"
    if others := reads.others(run.layer):
        return "", f"the weight or bias of {run.layer} is also read by {others}"
    if others := reads.others(name):
        return "", f"its own weight, bias or statistics are also read by {others}"
    if run.output.dim() != FOLDABLE[type(layer)]:
        return "", f"its channels are not those of {run.layer}"
    if layer._forward_hooks or layer._forward_pre_hooks or norm._forward_hooks or norm._forward_pre_hooks:
        return "", f"it or {run.layer} has hooks, which may change what passes"
    return run.layer, ""


def _sharers(model: nn.Module, layer: nn.Module) -> set[str]:
    """The modules that hold a weight or bias of the layer, itself among them."""
    own = {place_of(p) for p in layer.parameters()}
    return {
        name
        for name, module in model.named_modules()
        if any(
            place_of(x) in own
            for x in [*module._parameters.values(), *module._buffers.values()]
            if x is not None
        )
    }


@torch.no_grad()
def _fold(layer: Any, norm: Any) -> None:
    # In double, so that the one rounding at the end is all that is lost.
    mean, variance = norm.running_mean.double(), norm.running_var.double()
    factor = (variance + norm.eps).rsqrt()
    shift = torch.zeros_like(mean)
    if norm.affine:
        factor, shift = factor * norm.weight.double(), norm.bias.double()
    bias = torch.zeros_like(mean) if layer.bias is None else layer.bias.double()
    layer.weight.copy_(layer.weight.double() * _along_channels(layer, factor))
    new_bias = ((bias - mean) * factor + shift).to(layer.weight.dtype)
    if layer.bias is None:
        layer.bias = nn.Parameter(new_bias, requires_grad=layer.weight.requires_grad)
    else:
        layer.bias.copy_(new_bias)


def _along_channels(layer: Any, factor: Tensor) -> Tensor:
    """The factors, in a shape that broadcasts against the layer's weight."""
    shape = layer.weight.shape
    if not getattr(layer, "transposed", False):
        return factor.reshape(-1, *(1,) * (len(shape) - 1))
    # (I, O / groups, ...): each block of I / groups rows has its own output channels.
    rows = factor.reshape(layer.groups, shape[1]).repeat_interleave(shape[0] // layer.groups, dim=0)
    return rows.reshape(*shape[:2], *(1,) * (len(shape) - 2))


def _vanish(norm: nn.Module) -> None:
    # Its class changes, not its identity: who holds it in another way than as a submodule stays right.
    norm.__class__ = nn.Identity
    norm._parameters.clear()
    norm._buffers.clear()
