"""Freezing of weights that swing between two codes."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from qat.layers import QuantLayer
from qat.layers.deployable import Deployable
from qat.quantizers import Quantizer, follows_formula
from qat.training.network import network_of, require_quantizers
from qat.training.schedule import planned_steps

MOMENTUM = 0.01  # the weight of the newest step in both moving averages
LOOSEST = 0.1  # the threshold at the first quantized step
COARSE = 4  # bits; with more, a change of the code is a small one


class FreezeOscillating(Callback):
    """Freezes each weight that turns around too often, at the mean of its codes.

    Of each weight of at most 4 bits it keeps a moving average of its code, and the frequency f of its turns:
    `f <- 0.99 f + 0.01 [the code changed, in the direction opposite to its last change]`. Where f exceeds a
    threshold, the code is fixed to the rounded average: after each later step the weight is set to this code
    times the current scale. The threshold falls from 0.1 to `threshold` along a cosine, from the first epoch
    with quantized weights to the end of the run. In a schedule of bits, it begins when a layer has its own
    bits.

    The state is saved in the .ckpt files, and a resumed run is that without an interruption. The share of
    frozen weights is logged as `frozen_weights`.

    Args:
        threshold: the frequency at the end, in turns per step, in (0, 0.1]; 0.01 is the paper's.
        first_epoch: the first epoch with quantized weights.

    Raises:
        ValueError: the threshold is out of range; at the start of the run, the module holds no quantizer or
            has deployable layers, whose weight is another in each step, or the run has no planned end.

    Source: Nagel et al. 2022, "Overcoming oscillations in quantization-aware training", section 4.3.
    """

    def __init__(self, threshold: float, first_epoch: int = 0) -> None:
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold <= 0.1:
            raise ValueError(f"freeze_oscillating must be in (0, 0.1], got {threshold!r}; 0.01 is a start")
        self.threshold, self.first_epoch = threshold, first_epoch
        self._layers: dict[str, dict[str, Tensor]] = {}
        self._step = -1

    def state_dict(self) -> dict[str, Any]:
        """The state of each layer, as tensors of the form of its weight."""
        return {name: dict(state) for name, state in self._layers.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._layers = {name: dict(state) for name, state in state_dict.items()}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        require_quantizers(pl_module, self)
        if any(isinstance(module, Deployable) for module in pl_module.modules()):
            why = "whose quantized weight changes with BatchNorm's statistics"
            raise ValueError(f"freeze_oscillating must be left out with deployable, {why}")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step = trainer.global_step
        if math.isinf(planned_steps(trainer)):
            raise ValueError("freeze_oscillating needs max_epochs or max_steps, at whose end it is tightest")

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step == self._step:  # no step of the optimizer
            return
        self._step = trainer.global_step
        limit = self._limit(trainer)
        for name, layer, quantizer in _quantized(pl_module):
            weight = layer.effective_weight
            codes = quantizer.codes(weight).float()
            state = self._layers.setdefault(name, _start(codes))
            _update(state, codes, limit, quantizer.grid.step)
            kept = torch.where(state["frozen"], state["code"] * quantizer.scale(weight), weight.float())
            layer.weight.copy_(layer.own_form(kept))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._layers:
            frozen = torch.stack([state["frozen"].sum() for state in self._layers.values()]).sum()
            count = sum(state["frozen"].numel() for state in self._layers.values())
            pl_module.log("frozen_weights", frozen.float() / count)

    def _limit(self, trainer: Trainer) -> float:
        total, epochs = planned_steps(trainer), trainer.max_epochs
        first = total * self.first_epoch / epochs if epochs and epochs > 0 else 0.0
        done = min(1.0, max(0.0, (trainer.global_step - first) / max(total - first, 1)))
        return self.threshold + (LOOSEST - self.threshold) * 0.5 * (1 + math.cos(math.pi * done))


def _quantized(module: LightningModule) -> Iterator[tuple[str, QuantLayer, Quantizer]]:
    """The layers whose weight is quantized to its own bits now, if these are few."""
    for name, layer in network_of(module).named_modules():
        quantizer = getattr(layer, "weight_quantizer", None)
        if not isinstance(layer, QuantLayer) or not follows_formula(quantizer) or not quantizer.enabled:
            continue
        if quantizer.grid == quantizer.own_grid and quantizer.grid.bits <= COARSE:
            yield name, layer, quantizer


def _start(codes: Tensor) -> dict[str, Tensor]:
    zeros = torch.zeros_like(codes)
    frozen = torch.zeros_like(codes, dtype=torch.bool)
    return {
        "code": codes.clone(),
        "mean": codes.clone(),
        "turn": zeros.clone(),
        "often": zeros,
        "frozen": frozen,
    }


def _update(state: dict[str, Tensor], codes: Tensor, limit: float, step: int) -> None:
    """One step: `code` is the last one, `turn` the sign of its last change, `often` the frequency f."""
    change = (codes - state["code"]).sign()
    turned = (change != 0) & (state["turn"] != 0) & (change != state["turn"])
    state["often"].lerp_(turned.float(), MOMENTUM)
    state["mean"].lerp_(codes, MOMENTUM)
    state["turn"].copy_(torch.where(change != 0, change, state["turn"]))
    new = (state["often"] > limit) & ~state["frozen"]
    first = step - 1  # the rounding to the codes of a midrise grid, which are odd
    nearest = ((state["mean"] - first) / step).round() * step + first
    moved = torch.where(state["frozen"], state["code"], codes)
    state["code"].copy_(torch.where(new, nearest, moved))
    state["frozen"].logical_or_(new)
