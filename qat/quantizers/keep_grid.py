"""Functions whose output holds elements of their input alone: on a quantizer's grid, if those were on it."""

from typing import Any

# By name, module or functional form alike.
KEEP_GRID = {
    *("max_pool1d", "max_pool2d", "max_pool3d"),
    *("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    *("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    *("flatten", "view", "view_as", "reshape", "unflatten", "squeeze", "unsqueeze", "permute", "transpose"),
    *("chunk", "split", "unbind", "__getitem__", "channel_shuffle", "pixel_shuffle"),
    *("contiguous", "clone", "detach", "expand"),
}


def keeps_grid(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the function's output holds elements of its first argument, and zeros, alone.

    Args:
        name: of the function.
        args, kwargs: what it is called with.
    """
    return name in KEEP_GRID or (name == "pad" and _pads_elements_or_zeros(args, kwargs))


def _pads_elements_or_zeros(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
    return mode != "constant" or not (args[3] if len(args) > 3 else kwargs.get("value"))
