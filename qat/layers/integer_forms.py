"""Which operations have a form in integers: asked by `quantize` before a training, and by the export."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from qat.gradients import Rounding, round_stochastic
from qat.layers.consumers import BATCH_NORMS
from qat.layers.example import run_example
from qat.layers.specs import QuantSpec
from qat.layers.tensor_properties import DROPOUT
from qat.module_state import copy_buffers, preserve_modes
from qat.names import one_line
from qat.torch_private import tensors_in

POOL = ("kernel_size", "stride", "padding")
# Functions and methods by name -> the module that computes the same, and the names of the arguments after the
# input.
AS_MODULES: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    "flatten": (nn.Flatten, ("start_dim", "end_dim")),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d, ("output_size",)),
    "avg_pool2d": (nn.AvgPool2d, (*POOL, "ceil_mode", "count_include_pad", "divisor_override")),
    "max_pool2d": (nn.MaxPool2d, (*POOL, "dilation", "ceil_mode", "return_indices")),
    **dict.fromkeys(("relu", "relu_"), (nn.ReLU, ("inplace",))),
    "relu6": (nn.ReLU6, ("inplace",)),
    **dict.fromkeys(("hardtanh", "hardtanh_"), (nn.Hardtanh, ("min_val", "max_val", "inplace"))),
}
ADDITIONS = ("add", "add_", "iadd", "__add__", "__iadd__", "__radd__")
# In eval mode these return their input.
PASSED = ("contiguous", "clone", "detach", "dropout", "dropout1d", "dropout2d", "feature_dropout")
ACTIVATIONS = "use ReLU, ReLU6 or Hardtanh"
REMEDIES = {
    **dict.fromkeys(("silu", "gelu", "hardswish", "sigmoid", "hardsigmoid", "tanh", "elu"), ACTIVATIONS),
    **dict.fromkeys(("leaky_relu", "prelu", "mish", "softplus", "softmax", "log_softmax"), ACTIVATIONS),
    "cat": "add the tensors instead",
    "pad": "use the padding of the convolution, with zeros",
    "batch_norm": "use a BatchNorm module after a convolution or linear layer",
    "conv2d": "use an nn.Conv2d module",
    "linear": "use an nn.Linear module",
}
TIES = (-2.5, -1.5, -0.5, 0.25, 0.5, 0.75, 1.5, 2.5)
WIDEST = 8  # bits
SHOWN = 4  # operations that the error names


def called_module(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> nn.Module | None:
    """The module that computes the same as a call of a function; None: the call has no form in integers."""
    if function == "mean":
        axes = args[1] if len(args) > 1 else kwargs.get("dim")
        positive = sorted(axis % 4 for axis in axes) if isinstance(axes, list | tuple) else axes
        return nn.AdaptiveAvgPool2d(1) if positive == [2, 3] and not kwargs.get("dtype") else None
    if function not in AS_MODULES:
        return None
    kind, names = AS_MODULES[function]
    options = dict(zip(names, args[1:], strict=False)) | kwargs
    options.pop("input", None)
    if function == "flatten":
        options = {"start_dim": 0} | options
    try:
        return kind(**options)
    except TypeError:  # an argument that the module does not have, such as `out`
        return None


def is_flat_view(sizes: tuple[Any, ...], length: int, batch: int | None = None) -> bool:
    """Whether a view of these sizes keeps the batch, and makes one vector of the `length` other elements.

    `batch` is the size of the batch; None while torch.fx traces, when it is no number.
    """
    if len(sizes) == 1 and isinstance(sizes[0], list | tuple):
        sizes = tuple(sizes[0])
    if len(sizes) != 2 or sizes[1] not in (-1, length):
        return False
    return sizes == (-1, length) or (sizes[0] == batch if batch else not isinstance(sizes[0], int))


def obstacle(module: Any) -> str:
    """Why a module has no form in integers, and the remedy; empty if it has one."""
    if isinstance(module, nn.Conv2d):
        if module.padding_mode != "zeros":
            return f"padding_mode {module.padding_mode} (use zeros)"
        reach = [(k - 1) * d for k, d in zip(module.kernel_size, module.dilation, strict=True)]
        if module.padding == "same" and any(size % 2 for size in reach):
            return "padding same of an even kernel (give the padding in numbers)"
    if isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size not in (1, (1, 1)):
        return f"adaptive average pooling to {module.output_size} (use AvgPool2d)"
    if isinstance(module, nn.AvgPool2d) and (
        module.ceil_mode or module.divisor_override or module.padding not in (0, (0, 0))
    ):
        return "average pooling with padding, ceil_mode or divisor_override (leave them out)"
    if isinstance(module, nn.MaxPool2d) and (
        module.ceil_mode or module.return_indices or module.dilation not in (1, (1, 1))
    ):
        return "max-pooling with ceil_mode, dilation or return_indices (leave them out)"
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) not in ((1, -1), (1, 3)):
        return f"flatten of the axes {module.start_dim} to {module.end_dim} (use nn.Flatten())"
    return ""


@dataclass(eq=False)
class _Operation:
    """A tensor that depends on the network's input: how it was computed, and from what."""

    why: str  # the operation has no form in integers; empty: it has one
    inputs: list["_Operation"]
    is_raw: bool = False  # it is the network's input, which no quantizer has seen

    def __post_init__(self) -> None:
        self.depth: int = 1 + max((each.depth for each in self.inputs), default=0)


def drops(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call is a dropout that is on; the default of its `training` is True."""
    return function in DROPOUT and bool(kwargs.get("training", args[2] if len(args) > 2 else True))


class _Recorder(TorchFunctionMode):
    """Records what is computed from the network's input, while an example runs."""

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], buffers: dict[str, Tensor], layers: dict[str, str]
    ) -> None:
        super().__init__()
        self.model, self.layers = model, layers  # the quantized layers, and why they have no form
        self.path: list[str] = []
        self.inputs = tensors_in(args)
        known = [*model.parameters(), *buffers.values()]
        self.known: dict[int, tuple[Tensor, _Operation | None]] = {id(x): (x, None) for x in known}
        self.known |= {id(x): (x, _Operation("", [], is_raw=True)) for x in self.inputs}

    def enter(self, name: str, module: nn.Module, inputs: list[Any]) -> None:
        pass

    def leave(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> None:
        if name in self.layers and isinstance(output, Tensor):
            read = tensors_in(inputs)
            why = self.layers[name]
            if isinstance(module, nn.Linear) and read[0].dim() != 2:
                why = f"{name}: a linear layer over {read[0].dim() - 1} axes (use nn.Flatten() before it)"
            of = [found for x in read if (found := self.find(x))]
            self.known[id(output)] = (output, _Operation(why, of))

    def find(self, x: Tensor) -> _Operation | None:
        """How a tensor was computed; None: it does not depend on the input."""
        if id(x) not in self.known:  # no mode sees the Functions of autograd
            self.known[id(x)] = (x, _Operation(f"{self.layer}: a custom autograd Function", []))
        return self.known[id(x)][1]

    @property
    def layer(self) -> str:
        return (self.path[-1] if self.path else "") or "the model itself"

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        inside = bool(self.path) and self.path[-1] in self.layers
        read = [] if inside else [(x, self.find(x)) for x in tensors_in((args, kwargs))]
        of = [operation for _, operation in read if operation]
        why = self._why(func.__name__, args, kwargs, of) if of else ""
        output = func(*args, **kwargs)
        for x in tensors_in(output):
            if inside or not of:
                self.known.setdefault(id(x), (x, None))
            elif not (func.__name__ in PASSED and x is read[0][0]):
                raw = func.__name__ in PASSED and of[0].is_raw
                self.known[id(x)] = (x, _Operation(why, of, raw))
        return output

    def _why(self, function: str, args: Any, kwargs: Any, of: list[_Operation]) -> str:
        """Why a call has no form in integers, with its layer; empty if it has one."""
        running = self.model.get_submodule(self.path[-1]) if self.path else self.model
        if drops(function, args, kwargs):
            return f"{self.layer}: {function} in eval mode (use nn.Dropout, or pass training=self.training)"
        if function in PASSED or isinstance(running, BATCH_NORMS):
            return ""
        if function in ("view", "reshape"):
            x, *sizes = args
            fits = is_flat_view(tuple(sizes), x[0].numel(), len(x))
            return "" if fits else f"{self.layer}: a view of shape {tuple(sizes)} (use nn.Flatten())"
        if function in ADDITIONS:
            return self._why_addition([x for x in tensors_in((args, kwargs)) if self.find(x)], kwargs, of)
        is_torchs = type(running).__module__.startswith("torch.nn.")
        name = type(running).__name__ if is_torchs else function
        module = called_module(function, args, kwargs)
        if module is None:
            remedy = REMEDIES.get(function)
            return f"{self.layer}: {name.partition('.')[0]}" + (f" ({remedy})" if remedy else "")
        if found := obstacle(module):
            return f"{self.layer}: {found}"
        if of[0].is_raw and not isinstance(module, nn.Flatten):
            return f"{self.layer}: {name} of the network's input, which has no codes yet"
        return ""

    def _why_addition(self, tensors: list[Tensor], kwargs: Any, of: list[_Operation]) -> str:
        if len(tensors) != 2 or tensors[0].shape != tensors[1].shape or kwargs:
            return f"{self.layer}: a sum with a number or a constant, or of different shapes"
        return f"{self.layer}: a sum with the network's input" if any(x.is_raw for x in of) else ""


def check_integer_forms(
    model: nn.Module, args: tuple[Any, ...], layers: list[QuantSpec], activations: list[QuantSpec]
) -> None:
    """Refuse a float model with operations that have no form in integers; a ValueError names them.

    The specs are those of its layers and activations. Only what the output depends on in eval mode counts.
    """
    buffers = copy_buffers(model)
    whys = {spec.name: _why_layer(model.get_submodule(spec.name), spec) for spec in layers}
    named = {name: f"{name}: {why}" if why else "" for name, why in whys.items()}
    recorder = _Recorder(model, args, buffers, named)
    output = run_example(model, args, buffers, False, recorder)
    found = [*_reached(output, recorder), *_untraceable(model)]
    found += [
        f"{s.name}: the grid {{-1, +1}} of an activation (give it 2 bits)" for s in activations if _is_sign(s)
    ]
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        rule = "deployable needs a form in integers for each operation, which these do not have"
        remedy = "or set deployable: onnx, for ONNX files alone"
        raise ValueError(f"{rule}: {'; '.join(found[:SHOWN])}{more}; {remedy}")


def _why_layer(layer: nn.Module, spec: QuantSpec) -> str:
    """Why a layer that gets these quantizers has no form in integers."""
    widths = {"weight": spec.weight_bits, "input": 1 if spec.source else spec.input_bits}
    if floats := [part for part, bits in widths.items() if bits > WIDEST]:
        return f"its {' and '.join(floats)} of more than 8 bits (give 1 to 8)"
    if not rounds_half_to_even(spec.config.rounding_function):
        return "a rounding that does not round half to even (use another)"
    return "an input on the grid {-1, +1} (give it 2 bits)" if _is_sign(spec) else obstacle(layer)


def _is_sign(spec: QuantSpec) -> bool:
    return spec.input_bits == 1 and spec.signed


@torch.no_grad()
def rounds_half_to_even(rounding: Rounding) -> bool:
    """Whether a rounding gives the codes that runtimes give; `stochastic` does in eval mode."""
    x = torch.tensor(TIES, device="cpu")
    return rounding is round_stochastic or torch.equal(rounding(x), torch.round(x))


def _reached(output: Any, recorder: _Recorder) -> list[str]:
    """The operations without a form on which the output depends, those near the input first."""
    if not isinstance(output, Tensor):
        return [f"the output: a {type(output).__name__} (return one tensor)"]
    if output.dim() > 2 and output.shape[2:].numel() > 1:
        return [f"the output: logits of shape {tuple(output.shape[1:])} (one for each class)"]
    found: dict[str, int] = {}
    waiting, seen = [recorder.find(output)], set[int]()
    while waiting:
        operation = waiting.pop()
        if operation is None or id(operation) in seen:
            continue
        seen.add(id(operation))
        if operation.why:
            found[operation.why] = min(operation.depth, found.get(operation.why, operation.depth))
        waiting += operation.inputs
    return sorted(found, key=lambda why: found[why])


def _untraceable(model: nn.Module) -> list[str]:
    try:
        with preserve_modes(model):
            fx.Tracer().trace(model.eval())
    except Exception as error:  # tracing raises many types
        return [f"the model itself: a forward that torch.fx cannot trace, {one_line(error)[:120]}"]
    return []
