"""Properties of a tensor that follow from the functions that computed it: its sign, its grid, its layers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from qat.quantizers.keep_grid import argument, keeps_grid
from qat.torch_private import tensors_in, tree_leaves

# Functions by name, the same for the module and the functional form. The output of a function that is not
# listed here and does not keep the grid is signed and on no grid.
KEEP_SIGN = {
    *("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
    *("avg_pool3d", "adaptive_avg_pool3d", "mean", "sum", "amax", "max", "maximum", "sqrt"),
    *("cat", "concat", "stack"),
}
# These keep the sign of their first argument, but may round its values off the grid.
CASTS = {"to", "type_as", "float", "double", "half", "bfloat16"}
# These keep the sign where no number among their arguments is negative.
ADD_OR_MULTIPLY = {
    *("add", "add_", "__add__", "__iadd__", "__radd__", "mul", "mul_", "__mul__", "__imul__", "__rmul__"),
    *("div", "div_", "__truediv__", "__itruediv__"),
}
UNSIGNED = {
    *("relu", "relu_", "relu6", "sigmoid", "sigmoid_", "hardsigmoid", "softmax", "softplus"),
    *("abs", "square", "exp"),
}
# Function -> the name of its second argument, the lower end, and that argument's default.
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
class TensorProperties:
    """What is known of one tensor while the example runs."""

    unsigned: bool = False  # it cannot be negative
    source: str | None = None  # the activation module whose grid it lies on; None: it lies on no grid
    upstream: frozenset[str] = frozenset()  # the layers it depends on; empty: on the network's input alone


def propagate(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], find: Callable[[Tensor], TensorProperties]
) -> TensorProperties:
    """The properties of a function's output; `find` returns those of a tensor among its arguments."""
    inputs = [find(x) for x in tensors_in((args, kwargs))]
    upstream = frozenset[str]().union(*(properties.upstream for properties in inputs))
    if keeps_grid(name, args, kwargs):
        return replace(inputs[0], upstream=upstream)
    if name in CASTS:
        unsigned = inputs[0].unsigned
    elif name in CLAMPS:
        low = argument(args, kwargs, 1, *CLAMPS[name])
        unsigned = isinstance(low, int | float) and low >= 0
    else:
        keeps = _keeps_sign(name, args, kwargs) and all(properties.unsigned for properties in inputs)
        unsigned = keeps or name in UNSIGNED
    return TensorProperties(unsigned, upstream=upstream)


def _keeps_sign(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name == "interpolate":  # bicubic interpolation overshoots
        return argument(args, kwargs, 3, "mode", "nearest") != "bicubic"
    if name in ADD_OR_MULTIPLY:
        return not any(isinstance(x, int | float) and x < 0 for x in tree_leaves((args, kwargs)))
    return name in KEEP_SIGN
