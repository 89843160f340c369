"""Warns of quantized layers that train badly: clipped values, unchanging weights, oscillating codes."""

import logging
from functools import partial
from typing import Any, NamedTuple

import torch
from lightning import Callback, LightningModule, Trainer
from torch import nn
from torch.utils.hooks import RemovableHandle

from qat.gradients import round_zero
from qat.layers import QuantLayer
from qat.quantizers import Quantizer
from qat.training.layer_statistics import ActivationStatistics, WeightStatistics
from qat.training.network import network_of, require_quantizers

Shares = dict[str, dict[str, float]]  # {layer: {statistic: value}}


class Limit(NamedTuple):
    """The share, 0..1, above which a statistic is worth a warning, what it means, and what may help."""

    share: float
    meaning: str
    remedy: str


UNCHANGED, OSCILLATING = "of the weights keep their code all epoch", "of the weights oscillate between codes"
LIMITS = {
    "clipped": Limit(
        0.10, "of the activations are clipped", "activation_scale learned, or more activation_bits"
    ),
    "unchanged": Limit(0.95, UNCHANGED, "a higher learning_rate, or weight_scale learned"),
    "oscillating": Limit(0.20, OSCILLATING, "a lower learning_rate, or frozen scales (freeze_epoch)"),
}
ENOUGH = 4  # updates: in an epoch with fewer, weights that stand still or oscillate mean nothing
FULL_RATE = 0.5  # of the peak: at a lower learning rate, weights are meant to stand still
COARSE = 4  # bits: on a finer grid each optimizer step changes codes, which does no harm

log = logging.getLogger(__name__)


class Health(Callback):
    """Observes the quantized layers of a run and warns when one trains badly.

    It goes with any LightningModule that holds a quantized network, under any name.

    It waits for the device once an epoch and changes nothing: a run with it equals a run without it to the
    last bit. It skips epochs that train in float. It logs `health/<layer>/<statistic>`:

    - `clipped`, 0..1: the share of activations whose code is beyond the grid.
    - `unchanged`, 0..1: the share of weights whose code was the same on each observed batch of the epoch.
    - `oscillating`, 0..1: the share of weights whose code turned, and turned back, at least once.
    - `activation_scale`, `weight_scale`: the mean scale on the last observed batch.

    At the end of an epoch it logs one warning for each statistic that is above its limit (`LIMITS`), with the
    layers, each of them once, and what may help. It does not warn in epochs with fewer than `ENOUGH` observed
    batches; of weights that stand still only if the learning rate reached half of its peak; of oscillation
    only at up to `COARSE` bits.

    Args:
        every: observe each batch whose number is a multiple of this, >= 1. An odd number also sees codes that
            change back and forth with each batch.
        warns: False logs no warnings; the statistics are logged in any case.

    Raises:
        ValueError: `every` is below 1; at the start of the run, the module holds no quantizer.

    Attributes:
        layers: `{layer: {statistic: [a number for each epoch, None if it was float]}}`, for a `result.json`.

    Source of oscillation: Nagel et al. 2022, "Overcoming oscillations in quantization-aware training",
    section 2.
    """

    def __init__(self, every: int = 7, warns: bool = True) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 batch, got {every}")
        self.every, self.warns = every, warns
        self.layers: dict[str, dict[str, list[float | None]]] = {}
        # The statistics of this epoch with the names of their layers, in the order of the modules.
        self._observed: list[tuple[str, ActivationStatistics | WeightStatistics]] = []
        self._weights: dict[str, WeightStatistics] = {}  # the statistics of weights among them
        self._hooks: list[RemovableHandle] = []
        self._epoch = -1
        self._epochs = self._updates = 0
        self._rate = 0.0  # the highest of the epoch, as a share of its peak
        self._warned: set[tuple[str, str]] = set()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        require_quantizers(pl_module, self)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # Not at the start of the epoch: another callback may still change the phase there, and a run that
        # goes on inside an epoch does not start it.
        if batch_idx == 0 or self._epoch != trainer.current_epoch:
            self._epoch = trainer.current_epoch
            self._begin_epoch(network_of(pl_module))
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        rates = [float(g["lr"] / g.get("initial_lr", g["lr"])) for g in groups if g["lr"] > 0]
        self._rate = max([self._rate, *rates])
        if batch_idx % self.every == 0:
            self._hooks = [
                statistics.quantizer.register_forward_hook(statistics.update, with_kwargs=True)
                for _, statistics in self._observed
                if isinstance(statistics, ActivationStatistics)
            ]

    def on_before_backward(self, *_: Any, **__: Any) -> None:
        while self._hooks:  # a checkpointed block runs again in the backward
            self._hooks.pop().remove()

    on_exception = on_before_backward

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % self.every == 0:
            self._updates += 1
            for weight in self._weights.values():
                weight.update()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        shares = self._compute()
        for layer, statistics in shares.items():
            self.layers.setdefault(layer, {name: [None] * self._epochs for name in statistics})
            for name, value in statistics.items():
                pl_module.log(f"health/{layer}/{name}", value, sync_dist=True)
        for layer, history in self.layers.items():
            for name, values in history.items():
                values.append(shares.get(layer, {}).get(name))
        self._epochs += 1
        if self._updates >= ENOUGH and trainer.is_global_zero:
            self._warn(shares)

    def _begin_epoch(self, network: nn.Module) -> None:
        self._updates, self._rate = 0, 0.0
        self._observed, self._weights = [], {}
        weight_quantizers = set()
        for name, module in network.named_modules():
            if isinstance(module, QuantLayer) and isinstance(module.weight_quantizer, Quantizer):
                quantizer = module.weight_quantizer
                weight_quantizers.add(quantizer)
                if quantizer.enabled:
                    weight = partial(getattr, module, "effective_weight")
                    self._weights[name] = WeightStatistics(quantizer, weight)
                    self._observed.append((name, self._weights[name]))
            elif isinstance(module, Quantizer) and module.enabled and module not in weight_quantizers:
                self._observed.append((name.rpartition(".")[0] or name, ActivationStatistics(module)))

    def _compute(self) -> Shares:
        # All statistics of the epoch travel in one tensor: the only wait of the epoch.
        keys = [(layer, name, value) for layer, s in self._observed for name, value in s.compute().items()]
        values = torch.stack([value.float() for _, _, value in keys]).tolist() if keys else []
        shares: Shares = {}
        for (layer, name, _), value in zip(keys, values, strict=True):
            shares.setdefault(layer, {})[name] = value
        return shares

    def _warn(self, shares: Shares) -> None:
        for name, limit in LIMITS.items():
            if name == "unchanged" and self._rate < FULL_RATE:
                continue
            above = {layer: s[name] for layer, s in shares.items() if s.get(name, 0.0) > limit.share}
            new = {layer: above[layer] for layer in above if (layer, name) not in self._warned}
            quantizers = {layer: self._weights[layer].quantizer for layer in new if layer in self._weights}
            if name == "oscillating":
                new = {layer: new[layer] for layer in new if quantizers[layer].grid.bits <= COARSE}
            self._warned |= {(layer, name) for layer in new}
            if new and self.warns:
                remedy = limit.remedy
                if name == "unchanged" and {quantizers[layer].rounding for layer in new} == {round_zero}:
                    remedy = "rounding ste: the gradient of rounding zero is zero"
                share, layers = 100 * max(new.values()), ", ".join(new)
                log.warning("health: up to %.0f %% %s in %s; try %s", share, limit.meaning, layers, remedy)
