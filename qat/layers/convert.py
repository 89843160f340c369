"""Convert a float model: every convolution and linear layer gets both operands on a grid."""

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.activation import QUANT_ACTIVATIONS, QuantActivation
from qat.layers.config import FLOAT, Quantization
from qat.layers.deployable import absorb_batchnorm, plan_absorbing
from qat.layers.example import arguments, check_model, check_trainable
from qat.layers.functional import HOLDER, announce_calls, replace_calls
from qat.layers.insert import (
    QUANT_LAYERS,
    activation_quantizer_of,
    quantize_activation,
    quantize_layer,
    weight_quantizer_of,
)
from qat.layers.integer_forms import check_integer_forms
from qat.layers.layer import QuantLayer
from qat.layers.specs import QuantSpec, quant_specs
from qat.layers.trace import CONV_AND_LINEAR, ModelTrace
from qat.quantizers import Quantizer, check_state
from qat.torch_private import tensors_in

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)  # to which no child may be added
LOST = 32  # the ratio of two largest magnitudes at which the smaller one loses five bits


def quantize(model: nn.Module, config: Quantization, example: Tensor | tuple[Any, ...]) -> nn.Module:
    """Put quantizers into a model, in place, and return it.

    Rule: every convolution and linear layer gets both operands on a grid. An activation module that feeds
    such a layer (max-pooling, views, zero padding or dropout may lie between) is quantized once, for all of
    its consumers; where the input does not come from an activation module, the layer quantizes its own input.
    What the structure keeps from being negative (after ReLU, sigmoid, softmax) gets an unsigned grid. The
    model's names and keys stay; those of the quantizers are added.

    The example runs once, in training mode but without dropout, to see which modules feed which and to
    initialize the scales. Afterwards mode, buffers and random state are as before. Zeros are a good example
    where only the structure matters: before a state is loaded, or before training, whose first batch sets the
    scales.

    Args:
        model: any module. Layers that are not plain `nn.Conv1d`, `nn.Conv2d`, `nn.ConvTranspose2d` or
            `nn.Linear` stay float, and so do matrix products outside of such layers, as in attention.
            `summary` lists both.
        config: bits, scales, rounding, overrides by layer; `deployable` folds BatchNorm too.
        example: `(N, C, H, W)` with N at least 2 (BatchNorm needs it), or a tuple of arguments.

    Raises:
        ValueError: the model is quantized already, is lazy or TorchScript, or has nothing to quantize; the
            example has no batch of 2 samples or does not run through the model; inference mode is on, or the
            model was made in it; a
            pattern in `config.layers` matches no layer or only layers that earlier patterns match, or asks
            for a float input of a layer that shares a quantized activation with others; with `deployable`, a
            BatchNorm does not fold, a layer is of a kind that integers do not reproduce, or (unless it is
            `onnx`) an operation has no form in integers.

        An error leaves the model as it was.

    Warns:
        UserWarning: a convolution or linear layer stays float, because it did not run as a plain one; a layer
            that runs several times has one scale for inputs of very different size; or the example is
            negative somewhere although `input_signed` is False.
    """
    args = _checked(model, config, example)
    trace = _traced(model, args, config)
    kinds = ", ".join(f"nn.{kind.__name__}" for kind in QUANT_LAYERS)
    if not trace.consumers:
        raise ValueError(f"the model ran no plain {kinds}: there is nothing to quantize")
    layers = [name for name, module in model.named_modules() if isinstance(module, CONV_AND_LINEAR)]
    if left := [name for name in layers if name not in trace.consumers]:
        text = f"left float, because they did not run as a plain one of {kinds}: {', '.join(left)}"
        warnings.warn(text, stacklevel=2)
    # What may raise comes before the first change of the model.
    activation_specs, layer_specs = quant_specs(trace, config)
    norms = plan_absorbing(model, args, layer_specs) if config.deployable else None
    if config.deployable is True:
        check_integer_forms(model, args, layer_specs, activation_specs)
    _warn_of_shared_scales(trace, layer_specs)
    activations = [
        (
            trace.functional.get(spec.name) or model.get_submodule(spec.name),
            activation_quantizer_of(spec, trace.activations[spec.name].samples),
        )
        for spec in activation_specs
    ]
    parts = []
    for spec in layer_specs:
        layer = model.get_submodule(spec.name)
        for_input = activation_quantizer_of(spec, trace.consumers[spec.name].samples)
        parts.append((layer, weight_quantizer_of(spec, layer), for_input))
    for activation, quantizer in activations:
        quantize_activation(activation, quantizer)
    _replace_calls(model, trace, activation_specs)
    for layer, for_weight, for_input in parts:
        quantize_layer(layer, for_weight, for_input)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and isinstance(module.linear1, QuantLayer):
            module.activation_relu_or_gelu = 0  # else its fast path in eval mode reads the float weights
    if norms is not None:
        absorb_batchnorm(model, norms, layer_specs)
    model.register_load_state_dict_pre_hook(check_state)  # before any layer is loaded
    return model


def _checked(model: nn.Module, config: Quantization, example: Any) -> tuple[Any, ...]:
    """The example as arguments, after all checks that need no run."""
    check_model(model)
    checkpointed = [name for name, part in model.named_modules() if hasattr(part, "is_checkpointed")]
    if checkpointed:
        raise ValueError(f"{checkpointed[0]} is checkpointed; call quantize before checkpoint_blocks")
    if not isinstance(config, Quantization):
        raise ValueError(f"config must be a Quantization, got {config!s:.80}")
    if any(isinstance(module, Quantizer) for module in model.modules()):
        raise ValueError("the model is quantized already; quantize a fresh float model instead")
    if torch.is_inference_mode_enabled():
        raise ValueError("quantize cannot run in inference mode, whose tensors do not train; leave it first")
    check_trainable(model)
    args = arguments(example, at_least=2)
    if not config.input_signed and any((x < 0).any() for x in tensors_in(args)):
        text = "the example holds negative values, which input_signed=False clips to 0; set it to True"
        warnings.warn(text, stacklevel=3)
    return args


def _warn_of_shared_scales(trace: ModelTrace, specs: Sequence[QuantSpec]) -> None:
    """Warn of layers that quantize the inputs of several calls with a scale that fits only some of them."""
    for spec in specs:
        samples = trace.consumers[spec.name].samples
        largest = [float(sample.abs().max()) if sample.numel() else 0.0 for sample in samples]
        if spec.input_bits < FLOAT and max(largest) > LOST * min(largest):
            numbers = ", ".join(f"{x:.3g}" for x in largest)
            warnings.warn(
                f"{spec.name} runs {len(samples)} times with one scale for all inputs, whose largest "
                f"magnitudes are {numbers}: small inputs lose most of their codes; use a copy of the layer "
                "for each call",
                stacklevel=3,
            )


def _traced(model: nn.Module, args: tuple[Any, ...], config: Quantization) -> ModelTrace:
    """The trace of a run in training mode.

    Activation calls are recognised by their number. So those of a module do not count if they are others in
    eval mode, or if `torch.utils.checkpoint` repeats them outside of its forward: layers then quantize their
    own inputs.
    """

    def traced(training: bool, others: set[str]) -> ModelTrace:
        left = {model.get_submodule(name) for name in others}
        trace = ModelTrace(
            lambda m: _is_plain(m, QUANT_LAYERS),
            lambda m: _is_plain(m, QUANT_ACTIVATIONS),
            lambda m: m not in left and _owns_calls(m),
        )
        trace.run(model, args, signed=config.input_signed, training=training)
        return trace

    trace = traced(True, set())
    if not trace.functional:
        return trace
    evaluated = traced(False, set())
    others = {name for name in trace.calls if trace.calls[name] != evaluated.calls.get(name)}
    others = {name for name in others | trace.repeated if any(trace.calls[name])}
    return traced(True, others) if others else trace


def _owns_calls(module: nn.Module) -> bool:
    """Whether activation functions that the module's forward calls may get a quantizer."""
    is_user_defined = not type(module).__module__.startswith("torch.")
    is_plain = "forward" not in vars(module) and not isinstance(module, CONTAINERS)
    return is_user_defined and is_plain and not hasattr(module, HOLDER)


def _replace_calls(model: nn.Module, trace: ModelTrace, specs: Sequence[QuantSpec]) -> None:
    """Put the quantized forms of activation calls where the calls are."""
    owners: dict[str, dict[str, nn.Module]] = {}
    for spec in specs:
        activation = trace.functional.get(spec.name)
        if isinstance(activation, QuantActivation):
            owner, _, call = spec.name.rpartition(".")
            owners.setdefault(owner.removesuffix(HOLDER).rstrip("."), {})[call] = activation
    modules = {name: model.get_submodule(name) for name in owners}
    inside = {part for module in modules.values() for part in module.modules() if part is not module}
    for name, calls in owners.items():
        replace_calls(modules[name], calls, name in trace.in_place)
    for module in inside:
        announce_calls(module)


def _is_plain(module: nn.Module, kinds: Collection[type[nn.Module]]) -> bool:
    return type(module) in kinds and "forward" not in vars(module)
