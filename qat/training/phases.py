"""Phases of a run: float, quantized, frozen. The number of the epoch alone decides."""

from collections.abc import Sequence
from typing import Any

from lightning import Callback, LightningModule, Trainer
from torch import nn

from qat.layers import freeze
from qat.layers.config import FLOAT
from qat.layers.consumers import BATCH_NORMS
from qat.quantizers import Quantizer, Scale
from qat.training.bit_schedule import bits_at, check_last, check_schedule, quantizers_of
from qat.training.lightning_private import needs_all_gradients
from qat.training.network import require_quantizers


class Phases(Callback):
    """Trains in float first, then quantized, then with frozen scales and frozen BatchNorm statistics.

    It goes with any LightningModule that holds a quantized network. Scales that the user has frozen stay so.

    Each epoch sets its phase when it starts, so a resumed run is in the right one. The phase also holds for
    the validation after that epoch, and for a model that is loaded from the .ckpt file of that epoch.

    Nothing moves a frozen scale: not the batches, not the weights and, where scales are learned, not the
    optimizer. A frozen BatchNorm normalises with its running statistics and does not update them; its factor
    and offset still learn.

    Args:
        float_epochs: the number of float epochs before the first quantized one, >= 0.
        freeze_epoch: the first epoch, counted from 0, with frozen scales. It must be above `float_epochs`,
            because a quantized epoch must measure the scales first. None: never.
        freeze_batchnorm_epoch: the first epoch with frozen BatchNorm statistics, >= 0; 0 is right for a run
            that starts from trained statistics. None: never.
        weight_schedule, activation_schedule: the bits of epoch 0, 1, ..., as in `[32, 32, 4, 2]`; the last
            ones hold for the rest of the run. Weights (activations) of fewer bits run at this width, 32 is
            float. An empty one: each quantizer has its own bits throughout.

    Raises:
        ValueError: a number is negative or not an integer, or `freeze_epoch` is not above `float_epochs`; a
            schedule grows, has a width that no grid has, or goes together with `float_epochs`; at the start
            of the run, the module holds no quantizer, or the schedule ends above the bits of one; when a run
            is resumed, it had another schedule.

    Source: Krishnamoorthi 2018, "Quantizing deep convolutional networks for efficient inference", sections
    3.2.2 (frozen statistics) and 7 (float before quantized, scales frozen late).
    """

    def __init__(
        self,
        float_epochs: int = 0,
        freeze_epoch: int | None = None,
        freeze_batchnorm_epoch: int | None = None,
        weight_schedule: Sequence[int] = (),
        activation_schedule: Sequence[int] = (),
    ) -> None:
        optional = {"freeze_epoch": freeze_epoch, "freeze_batchnorm_epoch": freeze_batchnorm_epoch}
        given = {name: value for name, value in optional.items() if value is not None}
        for name, value in {"float_epochs": float_epochs, **given}.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} must be an integer >= 0, got {value!r}")
        if freeze_epoch is not None and freeze_epoch <= float_epochs:
            raise ValueError(
                f"freeze_epoch must be above float_epochs ({float_epochs}), got {freeze_epoch}: a quantized "
                "epoch must measure the scales first"
            )
        self.schedules = {
            "weight": check_schedule("weight_schedule", weight_schedule, float_epochs),
            "activation": check_schedule("activation_schedule", activation_schedule, float_epochs),
        }
        self.float_epochs, self.freeze_epoch = float_epochs, freeze_epoch
        self.freeze_batchnorm_epoch = freeze_batchnorm_epoch
        self._frozen: set[Quantizer] = set()  # by this callback: what the user froze stays frozen

    @property
    def first_quantized(self) -> int:
        """The first epoch with quantized weights."""
        return self.schedules["weight"].count(FLOAT) or self.float_epochs

    def setup(self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any) -> None:
        """Refuse a strategy that waits for gradients of learned scales in phases that compute none."""
        learned = any(list(m.parameters()) for m in pl_module.modules() if isinstance(m, Scale))
        if learned and (self.float_epochs or self.freeze_epoch is not None) and needs_all_gradients(trainer):
            raise ValueError(
                "float_epochs and freeze_epoch with learned scales on several devices need "
                f"trainer.strategy ddp_find_unused_parameters_true, got {type(trainer.strategy).__name__}"
            )

    def state_dict(self) -> dict[str, Any]:
        """The schedules, which a resumed run must have, too."""
        return {kind: list(schedule) for kind, schedule in self.schedules.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for kind, schedule in self.schedules.items():
            before = state_dict.get(kind, [])
            if before != list(schedule):
                rule = f"{kind}_schedule must be that of the run that is resumed, {before}"
                raise ValueError(f"{rule}; got {list(schedule)}")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.float_epochs or self.freeze_epoch is not None or any(self.schedules.values()):
            require_quantizers(pl_module, self)
        for kind, schedule in self.schedules.items():
            check_last(kind, schedule, quantizers_of(pl_module, kind))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.enter(pl_module, trainer.current_epoch)

    on_train_start = on_train_epoch_start  # a run that goes on inside an epoch does not start that epoch

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._set_quantizers(pl_module, trainer.current_epoch)  # Lightning warns of modes that are set here

    def enter(self, model: nn.Module, epoch: int) -> None:
        """Put a model into the phase of an epoch, counted from 0."""
        self._set_quantizers(model, epoch)
        if self.freeze_batchnorm_epoch is not None:
            for module in model.modules():
                if isinstance(module, BATCH_NORMS):
                    module.train(epoch < self.freeze_batchnorm_epoch)

    def _set_quantizers(self, model: nn.Module, epoch: int) -> None:
        if self.float_epochs:
            set_quantized(model, epoch >= self.float_epochs)
        for kind, schedule in self.schedules.items():
            if schedule:
                bits = bits_at(schedule, epoch)
                for quantizer in quantizers_of(model, kind).values():
                    quantizer.enabled = bits < FLOAT
                    quantizer.widen(bits if bits < FLOAT else None)
        if self.freeze_epoch is not None:
            if epoch >= self.freeze_epoch:
                quantizers = [m for m in model.modules() if isinstance(m, Quantizer)]
                self._frozen.update(q for q in quantizers if not q.scale.frozen)
                freeze(model)
            else:
                while self._frozen:
                    self._frozen.pop().unfreeze()


def set_quantized(model: nn.Module, quantized: bool) -> None:
    """Switch all quantizers of a model on or off."""
    for module in model.modules():
        if isinstance(module, Quantizer):
            module.enabled = quantized
