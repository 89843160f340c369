"""What a classifier is told: checked, and in plain types for the .ckpt file."""

from dataclasses import asdict
from typing import Any, Literal, get_args

from qat.gradients import ROUNDINGS
from qat.layers import Quantization
from qat.names import unknown_name

OptimizerName = Literal["adamw", "sgd"]


def check_settings(
    optimizer: str, classes: int, rate: float, decay: float, scale_rate: float, seed: int
) -> None:
    """Ask whether the numbers of a classifier are in their ranges.

    Raises:
        ValueError: one is not, or the optimizer is unknown.
    """
    if optimizer not in get_args(OptimizerName):
        raise unknown_name("optimizer", optimizer, get_args(OptimizerName))
    if classes < 2:
        raise ValueError(f"classes must be at least 2, got {classes}")
    if not 0.0 < rate < float("inf"):
        raise ValueError(f"learning_rate must be > 0 and finite, got {rate}; 0.01 suits adamw")
    if not 0.0 <= decay < float("inf"):
        raise ValueError(f"weight_decay must be >= 0 and finite, got {decay}; 0 switches it off")
    if not 0.0 <= scale_rate < float("inf"):
        raise ValueError(f"scale_learning_rate must be >= 0 and finite, got {scale_rate}; 1 is the others'")
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")


def plain(quantization: Quantization) -> dict[str, Any]:
    """The configuration in types that a .ckpt file may hold; a function becomes its name."""
    settings = asdict(quantization)
    for block in (settings, *settings["layers"].values()):
        if callable(block.get("rounding")):
            block["rounding"] = _name_of(block["rounding"])
    return settings


def _name_of(rounding: Any) -> str:
    """A name of `ROUNDINGS`; a function that has none there is given anew by who loads the file."""
    names = [name for name, function in ROUNDINGS.items() if function is rounding]
    return names[0] if names else getattr(rounding, "__qualname__", "unnamed")


def dropout_seed(seed: int, epoch: int, rank: int) -> int:
    """A generator seed for each epoch of each rank, in 0 .. 2^32 - 1: the CPU's generator reads 32 bits.

    The three are spread by different odd factors; the order of the images has other seeds.
    """
    return (seed * 0x9E3779B1 + epoch * 0x85EBCA6B + rank * 0xC2B2AE35 + 1) % 2**32
