"""Freezes weights whose codes change back and forth."""

import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from qat.layers import QuantLayer
from qat.module_state import preserve_modes
from qat.quantizers import follows_formula
from qat.training.dampening import quantized_weights
from qat.training.health import COARSE
from qat.training.layer_statistics import nearest, nearest_codes
from qat.training.network import network_of, require_quantizers
from qat.training.phases import Phases
from qat.training.schedule import cosine_rise, planned_steps

FIRST_THRESHOLD = 0.1
MOMENTUM = 0.01  # the weight of the newest step in both moving averages


class FreezeOscillating(Callback):
    """Freezes each element of a weight whose code changes back and forth too often, for the rest of the run.

    It goes with any LightningModule that holds a quantized network. After each optimizer step, for each
    element, with m = 0.01:

    - A turn is a change of its code in the opposite direction of its last change.
    - The frequency of turns is `f <- (1 - m) f + m [turn]`, from 0.
    - The average code is `a <- (1 - m) a + m code`, from the first code.
    - An element with `f > threshold(t)` is frozen to the code nearest to a. The threshold falls by half a
      cosine from 0.1 at the first of these steps to `threshold` at the end of the run; in a run without a
      planned end it is `threshold` throughout.

    A frozen element is put back to `code * scale` after each step, so neither its gradient nor momentum nor
    weight decay moves it. It keeps its code and not its value: where the scale moves (learned, or observed on
    the current weight), it follows. The scale is measured on the weight with the frozen elements put back.
    In a deployable layer the code is that of the weight into which BatchNorm is folded; BatchNorm statistics
    that are measured anew rescale that weight, its frozen elements too, until the next step.

    It counts from the first step in which a weight has its own bits: float epochs, and epochs in which a
    schedule gives it more bits, count nothing. Weights of more than 4 bits are left alone, because each step
    changes codes on a fine grid, which does no harm. It logs `frozen_weights`, the share of frozen elements,
    0..1, at the end of each epoch. Its state is in the .ckpt files; a resumed run equals the uninterrupted
    one.

    Args:
        threshold: the threshold at the end of the run, above 0 and below 0.1; 0.01 to 0.02 is a start.

    Raises:
        ValueError: the threshold is out of range; at the start of the run, the network has no quantized
            weight of at most 4 bits, or one whose scale transforms it (DoReFa) or has a zero point; the run
            ends before the epoch in which weights have their own bits; a resumed run had another threshold.

    Source: Nagel et al. 2022, "Overcoming oscillations in quantization-aware training", section 4.3 and
    algorithm 1.
    """

    def __init__(self, threshold: float) -> None:
        known = isinstance(threshold, int | float) and not isinstance(threshold, bool)
        if not known or not 0 < threshold < FIRST_THRESHOLD:
            rule = f"freeze_oscillating must be a threshold above 0 and below {FIRST_THRESHOLD}"
            raise ValueError(f"{rule}, got {threshold!r}; 0.01 is a start")
        self.threshold = threshold
        self._first_step: int | None = None
        self._states: dict[str, _State] = {}
        self._layers: dict[str, QuantLayer] = {}
        self._hooks: list[RemovableHandle] = []
        self._module: Any = lambda: None

    def setup(self, trainer: Any, pl_module: LightningModule, stage: str) -> None:
        """Begin anew with another module; refuse a run that ends before anything could be frozen."""
        if self._module() is not pl_module:
            self._module = weakref.ref(pl_module)
            self._first_step, self._states = None, {}
        own = pl_module.configure_callbacks()  # the trainer may not have them yet
        for phases in (*trainer.callbacks, *(own if isinstance(own, list | tuple) else [own])):
            if isinstance(phases, Phases) and stage == "fit":
                bits = phases.schedules["weight"]
                first = bits.index(bits[-1]) if bits else phases.float_epochs
                if trainer.max_epochs is not None and -1 < trainer.max_epochs <= first:
                    rule = f"freeze_oscillating needs trainer.max_epochs above {first}, the first epoch in"
                    raise ValueError(f"{rule} which weights have their own bits; got {trainer.max_epochs}")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        require_quantizers(pl_module, self)
        self._layers = freezable_layers(network_of(pl_module))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Directly after the step, before anything reads the weights: an average of them, or a .ckpt file.
        step = partial(self._after_step, trainer)
        self._hooks = [optimizer.register_step_post_hook(step) for optimizer in trainer.optimizers]

    def on_train_end(self, *_: Any) -> None:
        self._remove_hooks()

    def on_exception(self, *_: Any) -> None:
        self._remove_hooks()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        weights = sum(layer.weight.numel() for layer in self._layers.values())
        frozen = sum(state.frozen.sum().to(pl_module.device) for state in self._states.values())
        pl_module.log("frozen_weights", frozen / weights)  # equal on all ranks, as the weights are

    def _remove_hooks(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _after_step(self, trainer: Trainer, optimizer: Optimizer, *_: Any) -> None:
        steps = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for name, layer in self._layers.items():
            quantizer: Any = layer.weight_quantizer
            if id(layer.weight) not in steps or not quantizer.enabled or quantizer.grid != quantizer.own_grid:
                continue
            if self._first_step is None:
                self._first_step = trainer.global_step
            if name not in self._states:
                self._states[name] = _State.of(layer)
            share = cosine_rise(trainer.global_step, self._first_step, planned_steps(trainer))
            self._states[name].update(layer, FIRST_THRESHOLD + share * (self.threshold - FIRST_THRESHOLD))

    def state_dict(self) -> dict[str, Any]:
        """The threshold, the first step that counts, and six tensors for each layer."""
        states = {
            name: {key: value.clone() for key, value in vars(state).items()}
            for name, state in self._states.items()
        }
        return {"threshold": self.threshold, "first_step": self._first_step, "layers": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["threshold"] != self.threshold:
            rule = f"freeze_oscillating must be that of the run that is resumed, {state_dict['threshold']}"
            raise ValueError(f"{rule}; got {self.threshold}")
        self._first_step = state_dict["first_step"]
        self._states = {name: _State(**tensors) for name, tensors in state_dict["layers"].items()}


@dataclass
class _State:
    """What is known of the elements of one weight, in the form of `effective_weight`."""

    codes: Tensor  # int8, after the last step; those of frozen elements stay
    direction: Tensor  # int8, -1, 0 or 1: of the last change
    frequency: Tensor  # float32, of turns, 0..1
    average: Tensor  # float32, of codes
    frozen: Tensor  # bool
    scale: Tensor  # with which the frozen elements were put back last

    @classmethod
    @torch.no_grad()
    def of(cls, layer: QuantLayer) -> "_State":
        codes, scale = _codes_and_scale(layer, layer.effective_weight)
        whole = codes.to(torch.int8)
        none, nothing = torch.zeros_like(whole), torch.zeros_like(codes)
        return cls(whole, none, nothing, codes, none.bool(), scale)

    @torch.no_grad()
    def update(self, layer: QuantLayer, threshold: float) -> None:
        """Count one step, freeze what turned too often, and put the frozen elements back."""
        stepped = layer.effective_weight
        for name, value in vars(self).items():  # a .ckpt file is read to the CPU
            setattr(self, name, value.to(stepped.device))
        before = (self.codes * self.scale).to(stepped.dtype)
        codes, self.scale = _codes_and_scale(layer, torch.where(self.frozen, before, stepped))
        change = (codes - self.codes).sign()
        self.frequency += MOMENTUM * ((change * self.direction < 0).float() - self.frequency)
        self.average += MOMENTUM * (codes - self.average)
        self.direction = torch.where(change == 0, self.direction, change.to(torch.int8))
        freezes = ~self.frozen & (self.frequency > threshold)
        grid: Any = layer.weight_quantizer
        new = torch.where(freezes, nearest(self.average, grid.grid), codes).to(torch.int8)
        self.codes = torch.where(self.frozen, self.codes, new)
        self.frozen = self.frozen | freezes
        own = layer.weight_of(self.codes * self.scale).to(layer.weight.dtype)
        layer.weight.copy_(torch.where(layer.own_form(self.frozen), own, layer.weight))


def _codes_and_scale(layer: QuantLayer, weight: Tensor) -> tuple[Tensor, Tensor]:
    quantizer: Any = layer.weight_quantizer
    with preserve_modes(quantizer):
        quantizer.eval()  # so that an observed scale is that of the weight as it is now
        scale = quantizer.scale(weight).clone()
    return nearest_codes(quantizer, weight, scale), scale


def freezable_layers(network: nn.Module) -> dict[str, QuantLayer]:
    """The layers whose weights may be frozen, by name; raises ValueError if one cannot, or none is there."""
    found = {}
    for name, layer in network.named_modules():
        if not isinstance(layer, QuantLayer) or not isinstance(layer.weight, nn.Parameter):
            continue
        quantizer = layer.weight_quantizer
        if not follows_formula(quantizer) or quantizer.own_grid.bits > COARSE:
            continue
        scale, value = quantizer.scale, quantizer.scale.value
        assert isinstance(value, Tensor)
        if scale.transform(layer.weight, value) is not layer.weight or scale.zero_point(value) is not None:
            rule = "freeze_oscillating needs weights whose scale only scales, without a transform"
            raise ValueError(f"{rule}, got {scale.kind} in {name}; choose weight_scale observed or learned")
        found[name] = layer
    if not found:
        rule = f"freeze_oscillating needs quantized weights of at most {COARSE} bits"
        raise ValueError(f"{rule}, got none; set weight_bits, or leave it out")
    return found


def check_weights(network: nn.Module, dampening: float, threshold: float | None) -> None:
    """Raise ValueError where dampening, or freezing of oscillating weights, has no weights to act on."""
    if dampening:
        quantized_weights(network)
    if threshold is not None:
        freezable_layers(network)
