"""When a run is float, quantized, and frozen: decided by the number of the epoch alone."""

from lightning import Callback, LightningModule, Trainer
from torch import nn

from qat.layers import QuantLayer
from qat.quantizers import Quantizer


class Phases(Callback):
    """Trains float first, then quantized, then with frozen ranges and BatchNorm statistics.

    The phase is set where an epoch starts, from its number, so that a resumed run is in the right one. It
    holds for the validation after that epoch too, and is kept in the .ckpt file: what is loaded for a test
    is float, or frozen, if it was when the file was written.

    Frozen ranges are moved by nothing: neither by the batches nor by the weights nor, where they are
    learned, by the optimizer and its momentum. A frozen BatchNorm normalises with its running statistics and
    moves them no more; its factor and offset still learn.

    Args:
        float_epochs: how many epochs train float before the first quantized one, >= 0.
        freeze_epoch: the first epoch, counted from 0, with frozen ranges; above `float_epochs`, for there
            must be a quantized epoch to measure them in. None: never.
        freeze_batchnorm_epoch: the first epoch with frozen BatchNorm statistics, >= 0; 0 suits a run that
            starts from trained ones. None: never.

    Raises:
        ValueError: a number is negative or no integer, or `freeze_epoch` is not above `float_epochs`.

    Source: Krishnamoorthi 2018, "Quantizing deep convolutional networks for efficient inference", sections
    3.2.2 (frozen statistics) and 7 (float before quantized, ranges frozen late).
    """

    def __init__(
        self,
        float_epochs: int = 0,
        freeze_epoch: int | None = None,
        freeze_batchnorm_epoch: int | None = None,
    ) -> None:
        given = {"freeze_epoch": freeze_epoch, "freeze_batchnorm_epoch": freeze_batchnorm_epoch}
        for name, value in {"float_epochs": float_epochs, **given}.items():
            if value is None and name in given:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} must be an integer >= 0, got {value!r}")
        if freeze_epoch is not None and freeze_epoch <= float_epochs:
            raise ValueError(
                f"freeze_epoch must be above float_epochs ({float_epochs}), got {freeze_epoch}: the ranges "
                "are measured in a quantized epoch first"
            )
        self.float_epochs = float_epochs
        self.freeze_epoch = freeze_epoch
        self.freeze_batchnorm_epoch = freeze_batchnorm_epoch

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.enter(pl_module, trainer.current_epoch)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.enter(pl_module, trainer.current_epoch)

    def enter(self, model: nn.Module, epoch: int) -> None:
        """Put a model into the phase of an epoch, counted from 0."""
        set_quantized(model, epoch >= self.float_epochs)
        if self.freeze_epoch is not None:
            _freeze_ranges(model, epoch >= self.freeze_epoch)
        if self.freeze_batchnorm_epoch is not None:
            for module in model.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.train(epoch < self.freeze_batchnorm_epoch)


def set_quantized(model: nn.Module, quantized: bool) -> None:
    """Switch all quantizers of a model on or off."""
    for module in model.modules():
        if isinstance(module, Quantizer):
            module.enabled = quantized


def is_quantized(model: nn.Module) -> bool:
    """Whether no quantizer of a model is switched off; a float model has none."""
    return all(module.enabled for module in model.modules() if isinstance(module, Quantizer))


def _freeze_ranges(model: nn.Module, frozen: bool) -> None:
    for module in model.modules():
        if frozen and isinstance(module, QuantLayer) and isinstance(module.weight_quantizer, Quantizer):
            # The weight's scale was measured before the last step: it is frozen at what it is now.
            module.weight_quantizer.observe(module.effective_weight)
        if isinstance(module, Quantizer):
            module.freeze() if frozen else module.unfreeze()
