"""Functions that only move or copy elements: if the input lies on a quantizer's grid, so does the output."""

from typing import Any

# By name; modules and functions have the same names.
KEEP_GRID = {
    *("max_pool1d", "max_pool2d", "max_pool3d"),
    *("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"),
    *("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    *("flatten", "view", "view_as", "reshape", "unflatten", "squeeze", "unsqueeze", "permute", "transpose"),
    *("chunk", "split", "unbind", "__getitem__", "narrow", "select", "index_select", "ravel"),
    *("channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "roll", "flip", "rot90"),
    *("movedim", "moveaxis", "swapaxes", "swapdims", "repeat", "tile", "repeat_interleave", "expand_as"),
    *("contiguous", "clone", "detach", "expand"),
}


def keeps_grid(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function returns only elements of its first argument, and zeros, for these arguments."""
    if name == "pad":
        constant = argument(args, kwargs, 2, "mode", "constant") == "constant"
        return not constant or not argument(args, kwargs, 3, "value", None)
    if name == "interpolate":
        return argument(args, kwargs, 3, "mode", "nearest") in ("nearest", "nearest-exact")
    return name in KEEP_GRID


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, default: Any) -> Any:
    """One argument of a call, given by position or by name."""
    return args[place] if len(args) > place else kwargs.get(name, default)
