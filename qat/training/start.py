"""Start a run from the weights of a float run."""

import logging
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor, nn

from qat.layers import QuantLayer
from qat.quantizers import Quantizer
from qat.training.ckpt import read_ckpt, remedy

log = logging.getLogger(__name__)


def load_start(model: nn.Module, path: str | Path) -> list[str] | None:
    """Load a float .ckpt file of `fit` into a classifier, quantized or not, and log what was loaded.

    Returns the class names in the file, if it has any.

    The scales of the weights are then measured on the loaded weights. The first training batch sets those of
    the activations. Raises ValueError unless the file has the keys and shapes of the float classifier.
    """
    ckpt = read_ckpt("start", path)
    loaded: dict[str, Tensor] = ckpt["state_dict"]
    state = model.state_dict()
    quantizers = tuple(f"{name}." for name, m in model.named_modules() if isinstance(m, Quantizer))
    network = {key: value for key, value in state.items() if not key.startswith(quantizers)}
    shapes, given = ({key: tuple(x.shape) for key, x in entries.items()} for entries in (network, loaded))
    for key in [*network, *loaded]:
        if shapes.get(key) != given.get(key):
            why = f"has shape {given.get(key, 'none')} in it, {shapes.get(key, 'none')} here"
            raise ValueError(
                f"start must be a float .ckpt file of this network, but {path} is not one: {key} {why}; "
                f"{remedy(ckpt, 'give one of a float run with the same model options')}"
            )
    model.load_state_dict({**state, **loaded})
    for module in model.modules():
        if isinstance(module, QuantLayer) and isinstance(module.weight_quantizer, Quantizer):
            module.weight_quantizer.scale.initialize(module.effective_weight.detach())
    new = len(state) - len(network)
    line = "start: loaded all %d entries of the network from %s; %d of quantizers are new"
    rank_zero_only(log.info)(line, len(network), path, new)
    names: list[str] | None = ckpt.get("class_names")
    return names
