"""What is known of a tensor from the functions that it came through."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from qat.quantizers.keep_grid import keeps_grid

# Functions by name, module or functional form alike. What is neither here nor keeps the grid gives
# signed values off it.
KEEP_SIGN = {
    *("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
    *("mean", "sum", "amax", "cat", "concat", "stack"),
}
# These too, where the numbers among their arguments are not negative.
ADD_OR_MULTIPLY = {
    *("add", "add_", "__add__", "__iadd__", "__radd__", "mul", "mul_", "__mul__", "__imul__", "__rmul__"),
}
UNSIGNED = {"relu", "relu_", "relu6", "sigmoid", "sigmoid_", "hardsigmoid", "softmax", "softplus"}
DROPOUT = {
    *("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "feature_dropout_"),
    *("alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_"),
}
MATRIX_PRODUCTS = {
    *("linear", "bilinear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "addmm", "baddbmm"),
    *("einsum", "scaled_dot_product_attention", "multi_head_attention_forward"),
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
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
    leaves = tree_leaves((args, kwargs))
    inputs = [known(x) for x in leaves if isinstance(x, Tensor)]
    upstream = frozenset[str]().union(*(fact.upstream for fact in inputs))
    if keeps_grid(name, args, kwargs):
        return replace(inputs[0], upstream=upstream)
    if name == "hardtanh":  # what nn.ReLU6 calls
        return Fact(unsigned=_argument(args, kwargs, 1, "min_val", -1.0) >= 0, upstream=upstream)
    keeps = name in KEEP_SIGN or (name in ADD_OR_MULTIPLY and not any(_negative(x) for x in leaves))
    unsigned = name in UNSIGNED or (keeps and all(fact.unsigned for fact in inputs))
    return Fact(unsigned=unsigned, upstream=upstream)


def _negative(x: Any) -> bool:
    return isinstance(x, int | float) and x < 0


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)
