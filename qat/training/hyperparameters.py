"""The hyper-parameters of a classifier: their ranges, and their form in a .ckpt file."""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Literal

from torch.optim import SGD, AdamW, Optimizer

from qat.names import unknown_name
from qat.options import check_seed

OptimizerName = Literal["adamw", "sgd"]
NESTEROV = partial(SGD, momentum=0.9, nesterov=True)
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"adamw": AdamW, "sgd": NESTEROV}


def check_hyperparameters(
    optimizer: str, classes: int, rates: tuple[float, float, float, float], seed: int, dampening: float
) -> None:
    """Raise ValueError for a value that is out of its range, or an unknown optimizer.

    `rates` are the learning rate, the weight decay, and the rates of scales and of BatchNorm's biases.
    """
    rate, decay, scale_rate, bias_rate = rates
    if optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS)
    check_seed("seed", seed)
    scale_rule = "scale_learning_rate must be >= 0 and finite"
    rules = {
        f"classes must be at least 2, got {classes}": classes >= 2,
        f"learning_rate must be > 0 and finite, got {rate}; 0.01 suits adamw": 0.0 < rate < inf,
        f"weight_decay must be >= 0 and finite, got {decay}; 0 switches it off": 0.0 <= decay < inf,
        f"dampening must be >= 0 and finite, got {dampening}; 0.001 is a start": 0.0 <= dampening < inf,
        f"batchnorm_bias_rate must be >= 0 and finite, got {bias_rate}; 1 is the rate of the weights": (
            0.0 <= bias_rate < inf
        ),
        f"{scale_rule}, got {scale_rate}; 1 is the rate of the weights": 0.0 <= scale_rate < inf,
    }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(rule)
