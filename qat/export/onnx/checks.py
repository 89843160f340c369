"""What a model must be before it is exported."""

import torch
from torch import Tensor, nn

from qat.layers import QuantLayer
from qat.quantizers import PowerOfTwo, Quantizer, Scale

TIES = (-2.5, -1.5, -0.5, 0.25, 0.5, 0.75, 1.5, 2.5)


def activation_quantizers(model: nn.Module) -> dict[str, Quantizer]:
    """The quantizers of activations by their names, in the order of the modules."""
    of_weights = {m.weight_quantizer for m in model.modules() if isinstance(m, QuantLayer)}
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, Quantizer) and module not in of_weights
    }


@torch.no_grad()
def scale_of(quantizer: Quantizer) -> Tensor:
    """The scale in use of a quantizer of activations, `()`; a learned one may be stored with a minus sign."""
    return quantizer.scale(torch.zeros(1)).detach()


def layer_of(quantizer: str) -> str:
    """The module that a quantizer belongs to, by name."""
    return quantizer.rpartition(".")[0] or quantizer


def check_ready(model: nn.Module) -> None:
    """Refuse a model that has no final codes yet, or codes that a runtime would not reproduce.

    A float model is ready.

    Raises:
        ValueError: a quantizer is switched off, never saw a training batch, or rounds otherwise than half to
            even; or an activation lies on the grid {-1, +1}.
    """
    for name, module in model.named_modules():
        if isinstance(module, Quantizer):
            if not module.enabled:
                raise ValueError(
                    f"{layer_of(name)}: its quantizer is off, the model is in a float phase; export it after "
                    "a quantized epoch"
                )
            _check_rounding(name, module)
    for name, quantizer in activation_quantizers(model).items():
        if not _batches(quantizer.scale):
            raise ValueError(
                f"{layer_of(name)}: the model was never calibrated, its ranges saw no batch; train it, "
                "load a trained state, or run it on a batch in training mode"
            )
        if quantizer.grid.step != 1:
            raise ValueError(
                f"{layer_of(name)}: no format holds activations of 1 signed bit, the grid {{-1, +1}}; give "
                "it 2 bits, or an input that is never negative"
            )


def _batches(scale: Scale) -> int:
    batches = (scale.inner if isinstance(scale, PowerOfTwo) else scale).batches
    assert isinstance(batches, Tensor)
    return int(batches)


@torch.no_grad()
def _check_rounding(name: str, quantizer: Quantizer) -> None:
    training = quantizer.training
    x = torch.tensor(TIES)
    same = torch.equal(quantizer.eval().effective_rounding(x), torch.round(x))
    quantizer.train(training)
    if not same:
        raise ValueError(
            f"{layer_of(name)}: runtimes round half to even, but its rounding does not; train it with another"
        )
