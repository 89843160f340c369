"""The LightningModule of one run: a network, its quantization, its loss and its optimizer."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning import Callback, LightningModule
from torch import Tensor
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics.classification import MulticlassAccuracy

from qat.layers import Quantization, quantize
from qat.losses import DistillationName
from qat.memory import checkpoint_blocks, packed_activations
from qat.training.compiling import Graph, prepare_kernels
from qat.training.finite import first_not_finite, not_finite
from qat.training.network import build_network
from qat.training.objective import LOSSES, LossName, objective
from qat.training.phases import Phases, is_quantized, set_quantized
from qat.training.schedule import one_cycle, parameter_groups
from qat.training.settings import OptimizerName, check_settings, dropout_seed, plain
from qat.training.start import load_start
from qat.training.teacher import load_teacher


class Classifier(LightningModule):
    """An image classifier: `images (N, C, H, W)` in [0, 1] -> logits `(N, classes)`.

    The network is built from the global random generator, then quantized, then its blocks are checkpointed:
    float, quantized and checkpointed runs of one seed start from equal weights.

    Args:
        name: which network: lenet, small_cnn, resnet8, resnet20, resnet56, or the import path of one's own,
            `my_module.MyNet`, which takes `input_shape` and `classes`.
        options: further arguments of the network, such as `width` or `dropout`.
        input_shape: `(C, H, W)` of one image.
        classes: number of classes, >= 2.
        loss: `huber` on one-hot targets, or `cross_entropy`.
        quantization: bits, gradients and scales.
        checkpoint: globs over module names; these blocks are recomputed in the backward.
        pack: keep what quantizers gave as packed codes until the backward; it changes nothing but memory.
        compile: let `torch.compile` make one graph of the network. It takes about a minute, and pays in long
            runs; not together with `pack`.
        optimizer: `adamw`, or `sgd` with Nesterov momentum 0.9.
        learning_rate: peak of the one-cycle schedule, > 0.
        weight_decay: for weights of convolution and linear layers only, >= 0. It moves a weight even where
            its gradient is zero.
        seed: with epoch and rank it decides every random draw of a training epoch (dropout), >= 0.
        teacher: a .ckpt file of `fit`, of a float run say, whose logits are learned as well; None: none.
        distillation: how the distance to the teacher is measured, `kl` or `huber`.
        distillation_weight: its factor beside the task's loss, >= 0.
        start: a .ckpt file of `fit`, of a float run of the same network, whose weights this run starts from;
            a resumed run goes on from its own. None: random weights.
        scale_learning_rate: the learning rate of learned scales as a multiple of the others', >= 0. They
            follow the same schedule and do not decay.
        float_epochs: how many epochs train float before the first quantized one, >= 0.
        freeze_epoch: from this epoch on, counted from 0 and above `float_epochs`, ranges are frozen.
        freeze_batchnorm_epoch: from this epoch on BatchNorm statistics are frozen, >= 0. See `Phases`.

    Raises:
        ValueError: an argument is unknown or out of range, or a pattern matches no module.
        FloatingPointError: in a training step, when the loss is not finite; says which layer saw it first.
    """

    def __init__(
        self,
        name: str = "small_cnn",
        options: dict[str, Any] = {},  # noqa: B006 - only read; a plain default is what help and YAML show
        input_shape: tuple[int, int, int] = (1, 28, 28),
        classes: int = 10,
        loss: LossName = "huber",
        quantization: Quantization = Quantization(),  # noqa: B008 - frozen
        checkpoint: list[str] = [],  # noqa: B006 - only read
        pack: bool = False,
        compile: bool = False,
        optimizer: OptimizerName = "adamw",
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        seed: int = 0,
        teacher: str | None = None,
        distillation: DistillationName = "kl",
        distillation_weight: float = 1.0,
        start: str | None = None,
        scale_learning_rate: float = 1.0,
        float_epochs: int = 0,
        freeze_epoch: int | None = None,
        freeze_batchnorm_epoch: int | None = None,
    ) -> None:
        given = dict(locals())  # before there is any other local variable
        del given["self"], given["__class__"]
        super().__init__()
        if isinstance(quantization, Mapping):  # from a .ckpt, which holds plain types only
            quantization = Quantization(**quantization)
        shape = tuple(input_shape)
        check_settings(optimizer, classes, learning_rate, weight_decay, scale_learning_rate, seed)
        if pack and compile:
            raise ValueError("pack must be false with compile true: no graph holds packed tensors; set one")
        Phases(float_epochs, freeze_epoch, freeze_batchnorm_epoch)  # refuses wrong numbers before the work
        self.objective = objective(loss, distillation, distillation_weight, taught=teacher is not None)
        listed = {"options": dict(options), "input_shape": list(shape), "checkpoint": list(checkpoint)}
        self._keep_hyperparameters(**given | listed | {"quantization": plain(quantization)})
        self.task, self.seed = LOSSES[loss], seed
        self._teacher: tuple[LightningModule, ...] = ()  # in a tuple: it is no part of this module's state
        self._started = start is None
        self.model = quantize(
            build_network(name, shape, classes, options), quantization, torch.zeros(2, *shape)
        )
        checkpoint_blocks(self.model, list(checkpoint))
        self.model.to(memory_format=torch.channels_last)  # convolutions are a fifth faster
        self._graph = Graph(self.model) if compile else None
        self.val_accuracy = MulticlassAccuracy(classes, average="micro")
        self.test_accuracy = MulticlassAccuracy(classes, average="micro")

    def _keep_hyperparameters(self, **plain: Any) -> None:
        self.save_hyperparameters(plain)

    def forward(self, images: Tensor) -> Tensor:
        """Shape: `(N, C, H, W)` -> `(N, classes)`."""
        images = images.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self._graph(images) if self._graph else self.model(images)
        return logits

    def packing(self) -> AbstractContextManager[None]:
        """Around a training forward: packs what is saved, where this run is told to."""
        return packed_activations() if self.hparams["pack"] else nullcontext()

    def load_teacher(self) -> None:
        """Read the teacher's file, where there is one to be read.

        Raises:
            ValueError: it is no .ckpt file of `fit`, or its images or classes are others.
        """
        path = self.hparams["teacher"]
        if path is not None and not self._teacher:
            self._teacher = (load_teacher(Classifier, path, self.hparams),)

    def load_start(self) -> None:
        """Load the weights to start from, where there are any and they, or a later state, are not loaded yet.

        Raises:
            ValueError: the file is no .ckpt file of `fit`, or not of a float run of this network.
        """
        if not self._started:
            load_start(self, self.hparams["start"])
        self._started = True

    def configure_callbacks(self) -> list[Callback]:
        phases = [self.hparams[key] for key in ("float_epochs", "freeze_epoch", "freeze_batchnorm_epoch")]
        return [Phases(*phases)] if phases != [0, None, None] else []

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["quantized"] = is_quantized(self)  # the rest of the phase is in buffers

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        set_quantized(self, checkpoint.get("quantized", True))
        self._started = True

    def on_fit_start(self) -> None:
        if not self._graph:
            elements = math.prod(self.hparams["input_shape"])
            prepare_kernels(self.model, self.trainer, self.device, elements)
        self.load_teacher()
        for teacher in self._teacher:
            teacher.to(self.device)

    def on_train_epoch_start(self) -> None:
        # A .ckpt is written where an epoch ends. Seeded anew here, dropout depends on seed, epoch and rank
        # alone, not on what ran before in this process: a resumed run equals the uninterrupted one.
        torch.manual_seed(dropout_seed(self.seed, self.current_epoch, self.global_rank))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        with self.packing():
            tensors = {"logits": self(images), "labels": labels}
        if self._teacher:
            tensors["teacher"] = self._teacher[0](images)
        loss: Tensor
        loss, terms = self.objective(**tensors)
        if not_finite(loss.detach()):
            step = f"epoch {self.current_epoch}, batch {batch_idx}"
            where = first_not_finite(self.model, images)
            raise FloatingPointError(f"the loss is {loss.item()} in {step}: {where}")
        kwargs: dict[str, Any] = {
            "on_epoch": True,
            "on_step": False,
            "sync_dist": True,
            "batch_size": len(labels),
        }
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
        # Here a resumed run has its own state already, and no callback has looked at the weights yet.
        self.load_start()
        rate = self.hparams["learning_rate"]
        factors = (self.hparams["weight_decay"], self.hparams["scale_learning_rate"])
        groups = parameter_groups(self.model, rate, *factors)
        optimizer: torch.optim.Optimizer
        if self.hparams["optimizer"] == "adamw":
            optimizer = AdamW(groups, lr=rate)
        else:
            optimizer = SGD(groups, lr=rate, momentum=0.9, nesterov=True)
        total = self.trainer.estimated_stepping_batches
        scheduler = LambdaLR(optimizer, lambda step: one_cycle(step, total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
