"""The LightningModule of one run: a network, its quantization, its loss and its optimizer."""

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics.classification import MulticlassAccuracy

from qat.gradients import ROUNDINGS
from qat.layers import Quantization, quantize
from qat.losses import huber_loss
from qat.memory import checkpoint_blocks
from qat.models import MODELS, ModelName
from qat.names import unknown_name
from qat.training.schedule import one_cycle, parameter_groups

LossName = Literal["huber", "cross_entropy"]
OptimizerName = Literal["adamw", "sgd"]


class Classifier(LightningModule):
    """An image classifier: `images (N, C, H, W)` in [0, 1] -> logits `(N, classes)`.

    The network is built from the global random generator, then quantized, then its blocks are checkpointed:
    float, quantized and checkpointed runs of one seed start from equal weights.

    Args:
        name: which network.
        options: further arguments of the network, such as `width` or `dropout`.
        input_shape: `(C, H, W)` of one image.
        classes: number of classes, >= 2.
        loss: `huber` on one-hot targets, or `cross_entropy`.
        quantization: bits, gradients and scales.
        checkpoint: globs over module names; these blocks are recomputed in the backward.
        optimizer: `adamw`, or `sgd` with Nesterov momentum 0.9.
        learning_rate: peak of the one-cycle schedule, > 0.
        weight_decay: for weights of convolution and linear layers only, >= 0. It moves a weight even where
            its gradient is zero.
        seed: with epoch and rank it decides every random draw of a training epoch (dropout), >= 0.

    Raises:
        ValueError: an argument is unknown or out of range, or a pattern matches no module.
    """

    def __init__(
        self,
        name: ModelName = "small_cnn",
        options: dict[str, Any] = {},  # noqa: B006 - only read; a plain default is what help and YAML show
        input_shape: tuple[int, int, int] = (1, 28, 28),
        classes: int = 10,
        loss: LossName = "huber",
        quantization: Quantization = Quantization(),  # noqa: B008 - frozen
        checkpoint: list[str] = [],  # noqa: B006 - only read
        optimizer: OptimizerName = "adamw",
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if isinstance(quantization, Mapping):  # from a .ckpt, which holds plain types only
            quantization = Quantization(**quantization)
        shape = tuple(input_shape)
        _check(loss, optimizer, classes, learning_rate, weight_decay, seed)
        self._keep_hyperparameters(
            name=name,
            options=dict(options),
            input_shape=list(shape),
            classes=classes,
            loss=loss,
            quantization=_plain(quantization),
            checkpoint=list(checkpoint),
            optimizer=optimizer,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            seed=seed,
        )
        self.loss, self.classes, self.seed = loss, classes, seed
        self.model = quantize(_build(name, shape, classes, options), quantization, torch.zeros(2, *shape))
        checkpoint_blocks(self.model, list(checkpoint))
        self.val_accuracy = MulticlassAccuracy(classes, average="micro")
        self.test_accuracy = MulticlassAccuracy(classes, average="micro")

    def _keep_hyperparameters(self, **plain: Any) -> None:
        self.save_hyperparameters(plain)

    def forward(self, images: Tensor) -> Tensor:
        """Shape: `(N, C, H, W)` -> `(N, classes)`."""
        logits: Tensor = self.model(images)
        return logits

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of a batch; `logits (N, classes)`, `labels (N,)` in `[0, classes)`."""
        if self.loss == "huber":
            return huber_loss(logits, F.one_hot(labels, self.classes).to(logits.dtype))
        return F.cross_entropy(logits, labels)

    def on_train_epoch_start(self) -> None:
        # A .ckpt is written where an epoch ends. Seeded anew here, dropout depends on seed, epoch and rank
        # alone, not on what ran before in this process: a resumed run equals the uninterrupted one.
        own = (((self.seed << 20) + self.current_epoch) << 12) + self.global_rank
        torch.manual_seed(own % 2**63)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        loss = self.compute_loss(self(images), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "val", self.val_accuracy)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "test", self.test_accuracy)

    def _evaluate(self, batch: tuple[Tensor, Tensor], stage: str, accuracy: MulticlassAccuracy) -> None:
        images, labels = batch
        logits = self(images)
        accuracy.update(logits, labels)
        kwargs: dict[str, Any] = {"prog_bar": True, "batch_size": len(labels)}
        self.log(f"{stage}_loss", self.compute_loss(logits, labels), sync_dist=True, **kwargs)
        self.log(f"{stage}_accuracy", accuracy, **kwargs)

    def configure_optimizers(self) -> Any:
        rate = self.hparams["learning_rate"]
        groups = parameter_groups(self.model, self.hparams["weight_decay"])
        optimizer: torch.optim.Optimizer
        if self.hparams["optimizer"] == "adamw":
            optimizer = AdamW(groups, lr=rate)
        else:
            optimizer = SGD(groups, lr=rate, momentum=0.9, nesterov=True)
        total = self.trainer.estimated_stepping_batches
        scheduler = LambdaLR(optimizer, lambda step: one_cycle(step, total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def _plain(quantization: Quantization) -> dict[str, Any]:
    plain = asdict(quantization)
    if callable(plain["rounding"]):  # a function has no place in a .ckpt; one without a name is given anew
        names = [name for name, function in ROUNDINGS.items() if function is plain["rounding"]]
        plain["rounding"] = names[0] if names else getattr(plain["rounding"], "__qualname__", "unnamed")
    return plain


def _build(name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> nn.Module:
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    known = dict(inspect.signature(MODELS[name]).parameters)
    del known["input_shape"], known["classes"]
    for key, value in options.items():
        if key not in known:
            raise unknown_name(f"option of {name}", key, known)
        kinds = {int: (int,), float: (int, float)}.get(known[key].annotation, (object,))
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise TypeError(f"option {key} of {name} must be of type {kinds[-1].__name__}, got {value!r}")
    try:
        return MODELS[name](shape, classes, **options)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise ValueError(
            f"{name} cannot be built with options {dict(options)} for images {shape}: {error}"
        ) from error


def _check(loss: str, optimizer: str, classes: int, rate: float, decay: float, seed: int) -> None:
    if loss not in get_args(LossName):
        raise unknown_name("loss", loss, get_args(LossName))
    if optimizer not in get_args(OptimizerName):
        raise unknown_name("optimizer", optimizer, get_args(OptimizerName))
    if classes < 2:
        raise ValueError(f"classes must be at least 2, got {classes}")
    if not 0.0 < rate < float("inf"):
        raise ValueError(f"learning_rate must be > 0 and finite, got {rate}; 0.01 suits adamw")
    if not 0.0 <= decay < float("inf"):
        raise ValueError(f"weight_decay must be >= 0 and finite, got {decay}; 0 switches it off")
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
