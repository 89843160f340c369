"""Measure BatchNorm's statistics and the scales of activations anew, after the weights have changed."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from qat.layers.consumers import BATCH_NORMS
from qat.module_state import preserve_modes
from qat.quantizers import Quantizer


@torch.no_grad()
def remeasure(model: nn.Module, batches: Iterable[Any], scales: bool = True) -> nn.Module:
    """Measure BatchNorm's running statistics and observed scales of activations anew, and return the model.

    Call it once the weights are no longer those that the batches of training have met: after averaging them
    (`AveragedModel`, Lightning's `WeightAveraging`, `EMAWeightAveraging`, `StochasticWeightAveraging`), after
    an edit of them, or before a model that was not trained is evaluated. The activations of averaged weights
    are other than the average of the activations, so an average of their scales does not fit them.

    The scales of weights need no call: `observed` ones are measured on the weight as it is, `learned` ones
    are parameters and averaged with it. Learned scales of activations and frozen scales stay as they are, as
    do quantizers that are not enabled. Dropout is off, no gradient is computed, modes stay.

    Args:
        model: a quantized model, or a float one with BatchNorm.
        batches: at least 20 of training size, from the training data: inputs of the model, or tuples of which
            the first is one, as a `DataLoader` gives them. BatchNorm takes their mean. Scales take a moving
            average, which the last 20 dominate.
        scales: whether observed scales of activations are measured, too.

    Raises:
        ValueError: there is nothing to measure, or no batch.

    Source: Izmailov et al. 2018, "Averaging weights leads to wider optima and better generalization", section
    3.2, for BatchNorm.
    """
    norms = [part for part in model.modules() if isinstance(part, BATCH_NORMS) and part.track_running_stats]
    quantizers = [part for part in model.modules() if isinstance(part, Quantizer) and part.enabled]
    averaged = [part for part in quantizers if part.scale.is_averaged and not part.scale.frozen]
    measured = averaged if scales else []
    if not norms and not measured:
        raise ValueError(
            "the model has no BatchNorm and no observed scale of activations: nothing to measure"
        )
    momenta = [norm.momentum for norm in norms]
    device = next(x.device for x in (*model.parameters(), *model.buffers()))
    batches = iter(batches)
    first = next(batches, None)
    if first is None:  # before anything is reset
        raise ValueError("batches must hold at least one batch, got none; a generator serves only once")
    with preserve_modes(model):
        model.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean of all batches
            norm.train()
        for quantizer in measured:
            quantizer.scale.restart()
            quantizer.train()
        try:
            for batch in chain([first], batches):
                inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(inputs.to(device) if isinstance(inputs, Tensor) else inputs)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
    return model
