"""Start a run from the weights of another one, that was float."""

from pathlib import Path

from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor, nn

from qat.layers import QuantLayer
from qat.quantizers import Quantizer
from qat.training.ckpt import read_ckpt


def load_start(model: nn.Module, path: str | Path) -> None:
    """Load a float .ckpt file of `fit` into a classifier that may be quantized, and say in a line what came.

    The scales of weights are then those of the loaded weights; those of activations are set by the first
    training batch.

    Args:
        model: the whole classifier; its keys are those of the file, and those of its quantizers.
        path: of the .ckpt file.

    Raises:
        ValueError: there is no such file, it is not a .ckpt file of `fit`, or it is of another network or of
            a quantized one: a key is missing, left over or of another shape.
    """
    loaded: dict[str, Tensor] = read_ckpt("start", path)["state_dict"]
    own = model.state_dict()
    quantizers = tuple(f"{name}." for name, m in model.named_modules() if isinstance(m, Quantizer))
    network = {key: value for key, value in own.items() if not key.startswith(quantizers)}
    for key in [*network, *loaded]:
        why = _difference(network.get(key), loaded.get(key))
        if why:
            raise ValueError(
                f"start must be a float .ckpt file of this network, but {path} is not one: {key} {why}"
            )
    model.load_state_dict({**own, **loaded})
    for module in model.modules():
        if isinstance(module, QuantLayer) and isinstance(module.weight_quantizer, Quantizer):
            module.weight_quantizer.scale.initialize(module.effective_weight.detach())
    new = len(own) - len(network)
    _say(f"start: {new} quantizer entries are new, all {len(network)} others come from {path}")


def _difference(own: Tensor | None, loaded: Tensor | None) -> str:
    if loaded is None:
        return "is missing in it"
    if own is None:
        return "is in it, but not in this network without its quantizers"
    if own.shape != loaded.shape:
        return f"has shape {tuple(loaded.shape)} in it, {tuple(own.shape)} here"
    return ""


@rank_zero_only
def _say(line: str) -> None:
    print(line)
