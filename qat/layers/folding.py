"""Fold BatchNorm into the layer before it, for a float model whose statistics are final."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.consumers import BATCH_NORMS, FOLDABLE, ConsumerRecorder, address_of, listed
from qat.layers.example import arguments, check_model, run_example
from qat.module_state import copy_buffers
from qat.quantizers import Quantizer
from qat.torch_private import has_forward_hooks


@dataclass(frozen=True)
class Folding:
    """What `fold_batchnorm` did."""

    folded: dict[str, str]  # the name of each folded BatchNorm -> the layer that it is folded into
    kept: dict[str, str]  # the name of each other BatchNorm -> why it does not fold


def fold_batchnorm(model: nn.Module, example: Tensor | tuple[Any, ...]) -> Folding:
    """Fold BatchNorms into the convolution or linear layer before them, in place.

    With y = gamma (w x + b - mean) / sqrt(var + eps) + beta, the layer gets the weight w f and the bias
    (b - mean) f + beta, f = gamma / sqrt(var + eps) for each output channel (Jacob et al. 2018, section 3.2).
    In eval mode the model computes the same up to rounding. The BatchNorm becomes `nn.Identity`, and its keys
    leave the `state_dict`. The example runs once, in eval mode, to see which modules read which tensors.

    A BatchNorm folds where its layer is one of torch's own, ran once, and shares its weight or bias with no
    other module; where only the BatchNorm reads the layer's output, and nothing keeps that output after the
    forward; and where nothing else reads the parameters of the two (`F.conv2d(x, self.conv.weight)` in the
    model's forward does, for instance).

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
    state = dict(model.named_parameters(remove_duplicate=False))
    recorder = ConsumerRecorder({**state, **buffers})
    recorder.finish(run_example(model, args, buffers, False, recorder))
    folded: dict[str, str] = {}
    kept: dict[str, str] = {}
    for name, norm in model.named_modules():
        if isinstance(norm, BATCH_NORMS):
            if why := _obstacle(model, recorder, name, norm):
                kept[name] = why
            elif call := recorder.norm_inputs[name][0]:
                folded[name] = call.layer
    for name, layer in folded.items():
        _fold(model.get_submodule(layer), model.get_submodule(name))
    return Folding(folded, kept)


def _obstacle(model: nn.Module, recorder: ConsumerRecorder, name: str, norm: nn.Module) -> str | None:
    """Why a BatchNorm does not fold into the layer whose output it read; None: it does."""
    inputs = recorder.norm_inputs.get(name, [])
    if len(inputs) != 1:
        return f"it ran {len(inputs)} times on the example"
    call = inputs[0]
    if call is None:
        return "it does not read the output of a plain convolution or linear layer"
    layer = model.get_submodule(call.layer)
    if type(norm) not in BATCH_NORMS or "forward" in vars(norm):
        return f"it is a {type(norm).__name__} whose forward may not be torch's"
    if norm.running_mean is None:
        return "it keeps no running statistics"
    if sum(other.layer == call.layer for other in recorder.calls) != 1:
        return f"{call.layer} runs more than once"
    if call.consumers != {name}:
        return f"the output of {call.layer} is also read by {listed(call.consumers - {name})}"
    if sharers := _holders(model, layer) - {call.layer}:
        return f"{call.layer} shares its weight or bias with {listed(sharers)}"
    if others := recorder.state_consumers(call.layer):
        return f"the weight or bias of {call.layer} is also read by {others}"
    if others := recorder.state_consumers(name):
        return f"its own weight, bias or statistics are also read by {others}"
    if call.dims != FOLDABLE[type(layer)]:
        return f"its channels are not those of {call.layer}"
    if has_forward_hooks(layer) or has_forward_hooks(norm):
        return f"it or {call.layer} has hooks, which may change what passes"
    return None


def _holders(model: nn.Module, layer: nn.Module) -> set[str]:
    """The modules that hold a weight or bias of the layer."""
    own = {address_of(p) for p in layer.parameters()}
    return {
        name
        for name, module in model.named_modules()
        for x in [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if address_of(x) in own
    }


@torch.no_grad()
def _fold(layer: Any, norm: Any) -> None:
    """Move a BatchNorm into the layer before it; an `nn.Identity` stays in its place."""
    # In double precision, so that only the last step rounds.
    mean, variance = norm.running_mean.double(), norm.running_var.double()
    factor = (variance + norm.eps).rsqrt()
    shift = torch.zeros_like(mean)
    if norm.affine:
        factor, shift = factor * norm.weight.double(), norm.bias.double()
    bias = torch.zeros_like(mean) if layer.bias is None else layer.bias.double()
    layer.weight.copy_(layer.weight.double() * along_channels(layer, factor))
    new_bias = ((bias - mean) * factor + shift).to(layer.weight.dtype)
    if layer.bias is None:
        layer.bias = nn.Parameter(new_bias, requires_grad=layer.weight.requires_grad)
    else:
        layer.bias.copy_(new_bias)
    # The class changes, not the object: references other than the submodule's stay right.
    norm.__class__ = nn.Identity
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        delattr(norm, name)


def along_channels(layer: Any, factor: Tensor) -> Tensor:
    """The factors in a shape that broadcasts against the layer's weight."""
    shape = layer.weight.shape
    if not getattr(layer, "transposed", False):
        return factor.reshape(-1, *(1,) * (len(shape) - 1))
    # The weight is (I, O / groups, ...): each block of I / groups rows has its own output channels.
    rows = factor.reshape(layer.groups, shape[1]).repeat_interleave(shape[0] // layer.groups, dim=0)
    return rows.reshape(*shape[:2], *(1,) * (len(shape) - 2))
