"""The LightningModule of one run: a network, its quantization, its loss and its optimizer."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, get_args

import torch
from lightning import LightningModule
from torch import Tensor
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics.classification import MulticlassAccuracy

from qat.gradients import ROUNDINGS
from qat.layers import Quantization, quantize
from qat.losses import DistillationName
from qat.memory import checkpoint_blocks
from qat.models import ModelName
from qat.names import unknown_name
from qat.training.ckpt import read_ckpt
from qat.training.network import build_network
from qat.training.objective import LOSSES, LossName, objective
from qat.training.schedule import one_cycle, parameter_groups

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
        teacher: a .ckpt file of `fit`, of a float run say, whose logits are learned as well; None: none.
        distillation: how the distance to the teacher is measured, `kl` or `huber`.
        distillation_weight: its factor beside the task's loss, >= 0.

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
        teacher: str | None = None,
        distillation: DistillationName = "kl",
        distillation_weight: float = 1.0,
    ) -> None:
        super().__init__()
        if isinstance(quantization, Mapping):  # from a .ckpt, which holds plain types only
            quantization = Quantization(**quantization)
        shape = tuple(input_shape)
        _check(optimizer, classes, learning_rate, weight_decay, seed)
        self.objective = objective(loss, distillation, distillation_weight, taught=teacher is not None)
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
            teacher=teacher,
            distillation=distillation,
            distillation_weight=distillation_weight,
        )
        self.task, self.seed = LOSSES[loss], seed
        self._teacher: tuple[Classifier, ...] = ()  # in a tuple: it is no part of this module's state
        self.model = quantize(
            build_network(name, shape, classes, options), quantization, torch.zeros(2, *shape)
        )
        checkpoint_blocks(self.model, list(checkpoint))
        self.val_accuracy = MulticlassAccuracy(classes, average="micro")
        self.test_accuracy = MulticlassAccuracy(classes, average="micro")

    def _keep_hyperparameters(self, **plain: Any) -> None:
        self.save_hyperparameters(plain)

    def forward(self, images: Tensor) -> Tensor:
        """Shape: `(N, C, H, W)` -> `(N, classes)`."""
        logits: Tensor = self.model(images)
        return logits

    def load_teacher(self) -> None:
        """Read the teacher's file, where there is one to be read.

        Raises:
            ValueError: it is no .ckpt file of `fit`, or its images or classes are others.
        """
        path = self.hparams["teacher"]
        if path is None or self._teacher:
            return
        ckpt = read_ckpt("teacher", path)
        teacher = Classifier(**ckpt["hyper_parameters"] | {"teacher": None})
        for key in ("input_shape", "classes"):
            if teacher.hparams[key] != self.hparams[key]:
                raise ValueError(
                    f"teacher must have {key} {self.hparams[key]}, got {teacher.hparams[key]} in {path}; "
                    "train one on the same data"
                )
        teacher.load_state_dict(ckpt["state_dict"])
        self._teacher = (teacher.eval().requires_grad_(False),)

    def on_fit_start(self) -> None:
        self.load_teacher()
        for teacher in self._teacher:
            teacher.to(self.device)

    def on_train_epoch_start(self) -> None:
        # A .ckpt is written where an epoch ends. Seeded anew here, dropout depends on seed, epoch and rank
        # alone, not on what ran before in this process: a resumed run equals the uninterrupted one.
        torch.manual_seed(dropout_seed(self.seed, self.current_epoch, self.global_rank))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        tensors = {"logits": self(images), "labels": labels}
        for teacher in self._teacher:
            tensors["teacher"] = teacher(images)
        loss: Tensor
        loss, terms = self.objective(**tensors)
        kwargs: dict[str, Any] = {"on_step": False, "on_epoch": True, "batch_size": len(labels)}
        self.log("train_loss", loss, prog_bar=True, **kwargs)
        if len(terms) > 1:
            self.log_dict({f"train_{name}": value for name, value in terms.items()}, **kwargs)
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
        self.log(f"{stage}_loss", self.task(logits, labels), sync_dist=True, **kwargs)
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


def dropout_seed(seed: int, epoch: int, rank: int) -> int:
    """A generator seed for each epoch of each rank, in 0 .. 2^32 - 1: the CPU's generator reads 32 bits.

    The three are spread by different odd factors; the order of the images has other seeds.
    """
    return (seed * 0x9E3779B1 + epoch * 0x85EBCA6B + rank * 0xC2B2AE35 + 1) % 2**32


def _check(optimizer: str, classes: int, rate: float, decay: float, seed: int) -> None:
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
