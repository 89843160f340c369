"""What is known of a tensor from the functions that it came through."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from qat.layers.example import tensors
from qat.quantizers.keep_grid import argument, keeps_grid

# Functions by name, module or functional form alike. What is neither here nor keeps the grid gives
# signed values off it.
KEEP_SIGN = {
    *("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
    *("avg_pool3d", "adaptive_avg_pool3d", "mean", "sum", "amax", "max", "maximum", "sqrt"),
    *("cat", "concat", "stack"),
}
# The first argument's sign, whatever the other is: the values may be rounded, and are not on the grid then.
CASTS = {"to", "type_as", "float", "double", "half", "bfloat16"}
# These too, where the numbers among their arguments are not negative.
ADD_OR_MULTIPLY = {
    *("add", "add_", "__add__", "__iadd__", "__radd__", "mul", "mul_", "__mul__", "__imul__", "__rmul__"),
    *("div", "div_", "__truediv__", "__itruediv__"),
}
UNSIGNED = {
    *("relu", "relu_", "relu6", "sigmoid", "sigmoid_", "hardsigmoid", "softmax", "softplus"),
    *("abs", "square", "exp"),
}
# Their argument for the least value, the second, and what it is where none is given.
CLAMPS: dict[str, tuple[str, float]] = {
    "hardtanh": ("min_val", -1.0),  # what nn.ReLU6 calls
    **dict.fromkeys(("clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_min_"), ("min", -1.0)),
}
DROPOUT = {
    *("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "feature_dropout_"),
    *("alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_"),
}
MATRIX_PRODUCTS = {
    *("linear", "bilinear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "addmm", "baddbmm"),
    *("einsum", "scaled_dot_product_attention", "multi_head_attention_forward"),
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    *("addmv", "addbmm", "inner", "tensordot", "chain_matmul", "linalg_multi_dot", "deform_conv2d"),
    *("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
}


@dataclass(frozen=True)
class Fact:
    """What is known of one tensor while the example runs."""

    unsigned: bool = False
    source: str | None = None  # the activation module on whose grid it lies
    upstream: frozenset[str] = frozenset()  # the matrix layers that it depends on; none: the network's input


def conclude(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], known: Callable[[Tensor], Fact]
) -> Fact:
    """What is known of a function's output.

    Args:
        name: of the function.
        args: its arguments.
        kwargs: those given by name.
        known: the fact of each tensor among them.
    """
    inputs = [known(x) for x in tensors((args, kwargs))]
    upstream = frozenset[str]().union(*(fact.upstream for fact in inputs))
    if keeps_grid(name, args, kwargs):
        return replace(inputs[0], upstream=upstream)
    if name in CASTS:
        return Fact(unsigned=inputs[0].unsigned, upstream=upstream)
    if name in CLAMPS:
        least = argument(args, kwargs, 1, *CLAMPS[name])
        return Fact(unsigned=isinstance(least, int | float) and least >= 0, upstream=upstream)
    keeps = _keeps_sign(name, args, kwargs) and all(fact.unsigned for fact in inputs)
    return Fact(unsigned=keeps or name in UNSIGNED, upstream=upstream)


def _keeps_sign(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name == "interpolate":  # bicubic overshoots
        return argument(args, kwargs, 3, "mode", "nearest") != "bicubic"
    if name in ADD_OR_MULTIPLY:
        return not any(_negative(x) for x in tree_leaves((args, kwargs)))
    return name in KEEP_SIGN


def _negative(x: Any) -> bool:
    return isinstance(x, int | float) and x < 0
