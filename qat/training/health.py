"""Signs of a quantized run that goes wrong: values clipped, weights that stand still, codes that swing."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn

from qat.gradients import round_zero
from qat.layers import QuantLayer
from qat.quantizers import Quantizer
from qat.training.watch import Activation, Weight


@dataclass(frozen=True)
class Limit:
    """A share above this is worth a line: what it means, and what may help."""

    share: float
    meaning: str
    remedy: str


LIMITS = {
    "clipped": Limit(
        0.10, "of the activations are clipped", "activation_scale learned, or more activation_bits"
    ),
    "unchanged": Limit(
        0.95, "of the weights keep their code all epoch", "a higher learning_rate, or weight_scale learned"
    ),
    "oscillating": Limit(
        0.20, "of the weights swing between codes", "a lower learning_rate, or frozen ranges (freeze_epoch)"
    ),
}
ENOUGH = 4  # looks: with fewer in an epoch, weights that do not move or swing say nothing
FULL_RATE = 0.5  # of the peak: where the schedule begins and ends, weights are meant to stand still

COARSE = 4  # bits: on a finer grid every step of the optimizer changes codes, and that does no harm

log = logging.getLogger(__name__)


class Health(Callback):
    """Watches the quantized layers of a run, and says in a line when one is not well.

    Every few batches it looks at the activations that enter a quantizer and at the codes of the weights; it
    waits for the device once an epoch. It moves nothing: a run with it equals one without to the last bit.
    An epoch that trains float is not watched. What it finds is logged as `health/<layer>/<what>`:

    - `clipped`, 0..1: the share of activations whose code is beyond the grid.
    - `unchanged`, 0..1: the share of weights whose code was the same at every look of the epoch.
    - `oscillating`, 0..1: the share of weights whose code turned, and turned back, at least once.
    - `activation_scale`, `weight_scale`: the mean scale when last looked at.

    At the end of an epoch one warning is logged for each kind that is above its limit somewhere (`LIMITS`:
    10 % clipped, 95 % unchanged, 20 % oscillating), with the layers and what may help; each layer and kind
    is named once. Nothing is judged in epochs of fewer than `ENOUGH` looks, weights that stand still only
    where the learning rate is at least half of its peak, and swinging ones only at up to `COARSE` bits.

    Args:
        every: batches from look to look, >= 1; an odd number sees codes that change with every batch.
        warns: whether warnings are logged; without them the findings are there all the same.

    Raises:
        ValueError: `every` is below 1.

    Attributes:
        layers: `{layer: {what: [one number for each epoch, None where it was float]}}`, for a `result.json`.

    Source of oscillation: Nagel et al. 2022, "Overcoming oscillations in quantization-aware training",
    section 2.
    """

    def __init__(self, every: int = 7, warns: bool = True) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 batch, got {every}")
        self.every, self.warns = every, warns
        self.layers: dict[str, dict[str, list[float | None]]] = {}
        self._activations: dict[str, Activation] = {}
        self._weights: dict[str, Weight] = {}
        self._order: list[str] = []
        self._handles: list[Any] = []
        self._epochs = self._looks = 0
        self._rate = 0.0
        self._named: set[tuple[str, str]] = set()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # Not where the epoch starts: there, other callbacks may still change its phase.
        if batch_idx == 0:
            self._begin(_network(pl_module))
        self._rate = max([self._rate, *_rates(trainer)])
        if batch_idx % self.every == 0:
            self._handles = [
                activation.quantizer.register_forward_hook(activation.look, with_kwargs=True)
                for activation in self._activations.values()
            ]

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        self._unhook()  # a checkpointed block runs again in the backward

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._unhook()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % self.every == 0:
            self._looks += 1
            for weight in self._weights.values():
                weight.look()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        now = self._shares()
        for layer, shares in now.items():
            self.layers.setdefault(layer, {what: [None] * self._epochs for what in shares})
            for what, share in shares.items():
                pl_module.log(f"health/{layer}/{what}", share, sync_dist=True)
        for layer, known in self.layers.items():
            for what, numbers in known.items():
                numbers.append(now.get(layer, {}).get(what))
        self._epochs += 1
        if self._looks >= ENOUGH and trainer.is_global_zero:
            self._warn(now)

    def _begin(self, network: nn.Module) -> None:
        self._looks, self._rate = 0, 0.0
        self._activations, self._weights = {}, {}
        self._order = [name for name, _ in network.named_modules()]
        of_weights = set()
        for name, module in network.named_modules():
            if isinstance(module, QuantLayer) and isinstance(module.weight_quantizer, Quantizer):
                of_weights.add(module.weight_quantizer)
                if module.weight_quantizer.enabled:
                    self._weights[name] = Weight(module.weight_quantizer, _weight_of(module))
        for name, module in network.named_modules():
            if isinstance(module, Quantizer) and module.enabled and module not in of_weights:
                self._activations[name.rpartition(".")[0] or name] = Activation(module)

    def _unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _shares(self) -> dict[str, dict[str, float]]:
        watched: list[tuple[str, Activation | Weight]] = [*self._activations.items(), *self._weights.items()]
        order = list(dict.fromkeys(sorted((name for name, _ in watched), key=self._order.index)))
        found = [(layer, one.shares()) for layer in order for name, one in watched if name == layer]
        flat = [(layer, what, share) for layer, shares in found for what, share in shares.items()]
        if not flat:
            return {}
        # All in one tensor: the only wait of the epoch.
        values = torch.stack([share.float() for _, _, share in flat]).tolist()
        now: dict[str, dict[str, float]] = {}
        for (layer, what, _), value in zip(flat, values, strict=True):
            now.setdefault(layer, {})[what] = value
        return now

    def _coarse(self, layer: str) -> bool:
        return self._weights[layer].quantizer.grid.bits <= COARSE

    def _warn(self, now: dict[str, dict[str, float]]) -> None:
        for what, limit in LIMITS.items():
            if what == "unchanged" and self._rate < FULL_RATE:
                continue
            bad = {n: s[what] for n, s in now.items() if what in s and s[what] > limit.share}
            if what == "oscillating":
                bad = {n: share for n, share in bad.items() if n not in self._weights or self._coarse(n)}
            new = [name for name in bad if (name, what) not in self._named]
            self._named |= {(name, what) for name in new}
            if new and self.warns:
                share, remedy = max(bad[name] for name in new), limit.remedy
                if what == "unchanged" and all(_stands(self._weights[name].quantizer) for name in new):
                    remedy = "rounding ste: that of zero passes no gradient"
                log.warning(
                    "health: up to %.0f %% %s in %s; try %s",
                    100 * share,
                    limit.meaning,
                    ", ".join(new),
                    remedy,
                )


def _weight_of(layer: QuantLayer) -> Callable[[], Tensor]:
    return lambda: layer.effective_weight


def _stands(quantizer: Quantizer) -> bool:
    return quantizer.rounding is round_zero


def _network(pl_module: LightningModule) -> nn.Module:
    network = pl_module.model
    assert isinstance(network, nn.Module)
    return network


def _rates(trainer: Trainer) -> list[float]:
    """Each group's learning rate as a share of its peak."""
    groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
    return [float(g["lr"] / g.get("initial_lr", g["lr"])) for g in groups if g["lr"] > 0]
