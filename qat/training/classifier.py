"""The LightningModule of one run: a network, its quantization, its loss and its optimizer."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from typing import Any

import torch
from lightning import Callback
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics.classification import MulticlassAccuracy

from qat.layers import Quantization, quantize
from qat.layers.unset import expect_state
from qat.losses import DistillationName
from qat.memory import checkpoint_blocks, packed_activations
from qat.training.ckpt import load_teacher, read_ckpt
from qat.training.class_names import NamedClasses
from qat.training.compiling import CompiledNetwork, prepare_kernels
from qat.training.dampening import dampening_loss, dampening_share
from qat.training.hyperparameters import OPTIMIZERS, OptimizerName, check_hyperparameters
from qat.training.loss import LossName, task_loss, training_loss
from qat.training.named_parts import check_named_parts, is_ckpt, stored_part
from qat.training.network import build_network, build_teacher
from qat.training.nonfinite import end_together
from qat.training.oscillation import FreezeOscillating, check_weights
from qat.training.phases import Phases
from qat.training.reestimation import Reestimation
from qat.training.resuming import ResumableModule
from qat.training.schedule import one_cycle, parameter_groups, planned_steps
from qat.training.start import load_start
from qat.training.whitening import whiten_by_images, whitened_layer

PHASES = (
    *("float_epochs", "freeze_epoch", "freeze_batchnorm_epoch"),
    *("weight_schedule", "activation_schedule"),
)


class Classifier(NamedClasses, ResumableModule):
    """An image classifier: images `(N, C, H, W)` in [0, 1] -> logits `(N, classes)`.

    The network is built from the global random generator, then quantized, then its blocks are checkpointed:
    float, quantized and checkpointed runs with the same seed start from equal weights.

    The network, the loss, the teacher and parts of the quantization may be user-defined: an import path such
    as `my_module.MyNet`, or in Python the class or function itself, which must lie in a module, because the
    .ckpt files name it.

    Args:
        name: the network: lenet, small_cnn, resnet8, resnet20, resnet56, or a user-defined class or function
            that takes `input_shape` and `classes`.
        options: additional arguments of the network, such as `width` or `dropout`.
        input_shape: `(C, H, W)` of one image.
        classes: number of classes, >= 2.
        loss: `huber` on one-hot targets, `cross_entropy`, or a user-defined function `(logits (N, C), labels
            (N,)) -> scalar`.
        delta: where the quadratic part of the Huber loss ends, > 0; only for `huber`.
        label_smoothing: the share of the target that training spreads over all classes, in [0, 1); only for
            `cross_entropy`.
        quantization: bits, gradients and scales.
        checkpoint: glob patterns of module names; these blocks are recomputed in the backward.
        pack: save the outputs of quantizers as packed codes until the backward. This only reduces memory;
            results do not change.
        compile: compile the network with `torch.compile`. Compiling takes one minute to several (many layers,
            learned scales), so it is useful for long runs. Not possible together with `pack`.
        optimizer: `adamw`, or `sgd` with Nesterov momentum 0.9.
        learning_rate: peak of the one-cycle schedule, > 0.
        weight_decay: weight decay of convolution and linear weights, >= 0. It changes a weight even if its
            gradient is zero.
        seed: decides every random draw of a training epoch (dropout), together with epoch and process, 0 to
            2^32 - 1.
        teacher: the .ckpt file of a (float) run for distillation, or a user-defined class or function that
            builds a network, as for `name`: the network is also trained on the logits of this one, which is
            frozen and in eval mode. None: no teacher.
        distillation: how the distance to the teacher's logits is measured, `kl` or `huber`.
        distillation_weight: factor of that distance, which is added to the loss of the task, >= 0.
        start: the .ckpt file of a float run of the same network, which provides the initial weights. It is
            not read when a run is resumed. None: random weights.
        scale_learning_rate: the learning rate of learned scales as a multiple of `learning_rate`, >= 0.
            Scales follow the same schedule and have no weight decay.
        batchnorm_bias_rate: the learning rate of the biases of BatchNorm as a multiple of `learning_rate`,
            >= 0.
        whiten: give the first convolution a fixed weight that whitens patches of 5,000 training images. It
            needs a Conv2d with an even number of channels, and data of `qat.data`.
        float_epochs: the number of float epochs before the first quantized one, >= 0.
        freeze_epoch: the first epoch with frozen scales, counted from 0, > `float_epochs`; None: never.
        freeze_batchnorm_epoch: the first epoch with frozen BatchNorm statistics, >= 0; None: never.
        batchnorm_batches: before each validation, BatchNorm statistics become the mean over this number of
            training batches; 0: they are the moving average of the training. Not with
            `freeze_batchnorm_epoch`.
        dampening: the factor of `dampening_loss` at the end of the run, >= 0; it rises from 0 along a cosine
            once the weights are quantized.
        freeze_oscillating: the threshold of `FreezeOscillating` at the end of the run, above 0 and below 0.1;
            None: no weight is frozen.
        weight_schedule, activation_schedule: the bits of epoch 0, 1, ..., as in `[32, 32, 4, 2]`; they do not
            grow, and end with the bits of `quantization`, which hold for the rest of the run.

    Attributes:
        class_names: the name of each class, by the data's order of labels; None while no data and no .ckpt
            file has named them.

    Raises:
        ValueError: an argument is unknown or out of range, or a pattern matches no module.
        FloatingPointError: in a training step whose loss is not finite; names the first layer with such an
            output.
    """

    def __init__(
        self,
        name: str | Any = "small_cnn",
        options: dict[str, Any] = {},  # noqa: B006 - only read; help and YAML show a plain default
        input_shape: tuple[int, int, int] = (1, 28, 28),
        classes: int = 10,
        loss: LossName | Any = "huber",
        delta: float = 1.0,
        label_smoothing: float = 0.0,
        quantization: Quantization = Quantization(),  # noqa: B008 - frozen
        checkpoint: list[str] = [],  # noqa: B006 - only read
        pack: bool = False,
        compile: bool = False,
        optimizer: OptimizerName = "adamw",
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        seed: int = 0,
        teacher: str | Any | None = None,
        distillation: DistillationName = "kl",
        distillation_weight: float = 1.0,
        start: str | None = None,
        scale_learning_rate: float = 1.0,
        batchnorm_bias_rate: float = 1.0,
        whiten: bool = False,
        float_epochs: int = 0,
        freeze_epoch: int | None = None,
        freeze_batchnorm_epoch: int | None = None,
        batchnorm_batches: int = 0,
        dampening: float = 0.0,
        freeze_oscillating: float | None = None,
        weight_schedule: tuple[int, ...] = (),
        activation_schedule: tuple[int, ...] = (),
    ) -> None:
        super().__init__(seed)
        parts = {"name": name, "loss": loss, "teacher": teacher}
        name, loss, teacher = (stored_part(argument, part) for argument, part in parts.items())
        self.save_hyperparameters(ignore=["quantization", "options", "input_shape", "checkpoint"])
        if isinstance(quantization, Mapping):  # from a .ckpt file, which holds plain types only
            quantization = Quantization(**quantization)
        shape = tuple(input_shape)
        rates = (learning_rate, weight_decay, scale_learning_rate, batchnorm_bias_rate)
        check_hyperparameters(optimizer, classes, rates, seed, dampening)
        if pack and compile:
            why = "a graph cannot hold packed tensors; choose one"
            raise ValueError(f"pack must be false with compile true: {why}")
        self.configure_callbacks()  # refuses wrong numbers before the work
        self._first_quantized = self._phases().first_quantized
        if batchnorm_batches and freeze_batchnorm_epoch is not None:
            why = "which keeps the statistics; choose one"
            raise ValueError(f"batchnorm_batches must be 0 with freeze_batchnorm_epoch, {why}")
        plain = {"quantization": quantization.plain_parts(), "options": dict(options)}
        self.save_hyperparameters(plain | {"input_shape": list(shape), "checkpoint": list(checkpoint)})
        self.task_loss = task_loss(loss, delta)
        smoothed = task_loss(loss, delta, label_smoothing)
        has_teacher = teacher is not None
        self.training_loss = training_loss(smoothed, distillation, distillation_weight, has_teacher)
        # In a tuple, so that it is no part of this module's state.
        self._teacher: tuple[nn.Module, ...] = ()
        self._started = start is None and not whiten
        network = build_network(name, shape, classes, options)
        self.model = expect_state(quantize(network, quantization, torch.zeros(2, *shape)))
        self._whitened = (whitened_layer(self.model),) if whiten else ()  # in a tuple: no second name
        check_weights(self.model, dampening, freeze_oscillating)
        checkpoint_blocks(self.model, list(checkpoint))
        self.model.to(memory_format=torch.channels_last)  # convolutions are a fifth faster
        self._compiled = CompiledNetwork(self.model) if compile else None
        self.val_accuracy = MulticlassAccuracy(classes, average="micro")
        self.test_accuracy = MulticlassAccuracy(classes, average="micro")

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, **kwargs: Any) -> "Classifier":
        """Build and load the classifier of a .ckpt file, as Lightning does; `kwargs` replace its arguments.

        Raises ValueError for a file that is damaged, or that names a network or a rounding of a module that
        is not imported.
        """
        check_named_parts(read_ckpt("checkpoint_path", checkpoint_path), checkpoint_path, kwargs)
        options = kwargs if args else {"weights_only": True} | kwargs
        loaded: Classifier = super().load_from_checkpoint(checkpoint_path, *args, **options)
        return loaded

    def forward(self, images: Tensor) -> Tensor:
        """Shape: `(N, C, H, W)` -> `(N, classes)`."""
        images = images.contiguous(memory_format=torch.channels_last)
        logits: Tensor = self._compiled(images) if self._compiled else self.model(images)
        return logits

    def packing(self) -> AbstractContextManager[None]:
        """The context of a training forward: packs what autograd saves, if `pack` is set."""
        return packed_activations() if self.hparams["pack"] else nullcontext()

    def load_teacher(self) -> None:
        """Read the .ckpt file of the teacher or build it, once; raises ValueError if it does not fit."""
        teacher = self.hparams["teacher"]
        if teacher is None or self._teacher:
            return
        if is_ckpt(teacher):
            loaded = load_teacher(Classifier, teacher, self.hparams)
            self.name_classes(loaded.class_names, f"teacher {teacher}")
            self._teacher = (loaded,)
        else:
            shape, classes = self.hparams["input_shape"], self.hparams["classes"]
            self._teacher = (build_teacher(teacher, tuple(shape), classes, self.seed),)

    def load_start(self) -> None:
        """Set the first weights by `start` and `whiten`, once, not in a resumed run.

        Raises ValueError if they do not fit the network.
        """
        if not self._started:
            if path := self.hparams["start"]:
                self.name_classes(load_start(self, path), f"start {path}")
            for layer in self._whitened:
                whiten_by_images(layer, getattr(self.trainer, "datamodule", None))
        self._started = True

    def setup(self, stage: str) -> None:
        data = getattr(self.trainer, "datamodule", None)  # None: plain loaders, which name no classes
        self.name_classes(getattr(data, "class_names", None), "the data")

    def configure_callbacks(self) -> list[Callback]:
        batches, threshold = self.hparams["batchnorm_batches"], self.hparams["freeze_oscillating"]
        chosen: list[Callback] = [self._phases(), *([Reestimation(batches)] if batches else [])]
        return chosen if threshold is None else [*chosen, FreezeOscillating(threshold)]

    def _phases(self) -> Phases:
        return Phases(**{name: self.hparams[name] for name in PHASES})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["qat_version"] = version("qat")
        # A callback that averages weights has put the state of its copy here. The flags of quantizers in it
        # are those at the start of the run; it averages tensors only.
        flags = {key: value for key, value in self.state_dict().items() if key.endswith("_extra_state")}
        checkpoint["state_dict"] = checkpoint["state_dict"] | flags
        checkpoint["class_names"] = self.class_names and list(self.class_names)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.name_classes(checkpoint.get("class_names"), "the .ckpt file")
        self._started = True

    def on_fit_start(self) -> None:
        if not self._compiled:
            elements = math.prod(self.hparams["input_shape"])
            prepare_kernels(self.model, self.trainer, self.device, elements)
        self.load_teacher()
        for teacher in self._teacher:
            teacher.to(self.device)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        with self.packing():
            tensors = {"logits": self(images), "labels": labels}
        if self._teacher:
            tensors["teacher"] = self._teacher[0](images)
        loss: Tensor
        loss, terms = self.training_loss(**tensors)
        if factor := self.hparams["dampening"]:
            terms["dampening"] = dampening_loss(self.model)
            loss = loss + factor * dampening_share(self.trainer, self._first_quantized) * terms["dampening"]
        end_together(self.model, images, loss, self.stops, f"epoch {self.current_epoch}, batch {batch_idx}")
        logged = {"loss": loss, **(terms if len(terms) > 1 else {})}
        for name, value in logged.items():
            options = {"prog_bar": name == "loss", "batch_size": len(labels), "sync_dist": True}
            self.log(f"train_{name}", value, on_epoch=True, on_step=False, **options)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "val", self.val_accuracy)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, "test", self.test_accuracy)

    def _evaluate(self, batch: tuple[Tensor, Tensor], stage: str, accuracy: MulticlassAccuracy) -> None:
        images, labels = batch
        logits = self(images)
        accuracy.update(logits, labels)
        loss, size = self.task_loss(logits, labels), len(labels)
        self.log(f"{stage}_loss", loss, prog_bar=True, sync_dist=True, batch_size=size)
        self.log(f"{stage}_accuracy", accuracy, prog_bar=True, batch_size=size)

    def configure_optimizers(self) -> Any:
        # Here a resumed run has loaded its state already, and no callback has read the weights yet.
        self.load_start()
        names = ("learning_rate", "weight_decay", "scale_learning_rate", "batchnorm_bias_rate")
        rates = [self.hparams[name] for name in names]
        optimizer = OPTIMIZERS[self.hparams["optimizer"]](parameter_groups(self.model, *rates))
        total = planned_steps(self.trainer)
        scheduler = LambdaLR(optimizer, lambda step: one_cycle(step, total))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
