"""What a quantizer's stored state means, and which option makes a model fit it."""

import json
from typing import Any

from torch import Tensor

Meaning = dict[str, Any]


def read_extra_state(state: Tensor) -> Meaning:
    """The entry as values: `bits`, `low`, `high` (int), `scale` (str), `enabled`, `frozen` (bool)."""
    meaning: Meaning = json.loads(bytes(state.tolist()))
    return meaning


def compare(name: str, state: Tensor, own_state: Tensor) -> None:
    """Refuse a stored state of another grid or kind of scale: a ValueError with the option that differs."""
    own = read_extra_state(own_state)
    own.pop("widened", None)  # a phase of training, which the loaded state sets
    try:
        stored = {key: read_extra_state(state)[key] for key in own}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        rule = f"{name}: the state to load has an _extra_state that cannot be read"
        raise ValueError(f"{rule}; give the bytes that state_dict returned") from error
    is_weight = name.rpartition(".")[2] == "weight_quantizer"
    for shown, remedy in (_grid(stored, own, is_weight), _scale(stored, own, is_weight)):
        theirs, ours = shown(stored), shown(own)
        if theirs != ours:
            raise ValueError(
                f"{name}: the state to load has {theirs}, the model has {ours}; set the model's {remedy}"
            )


def _grid(stored: Meaning, own: Meaning, is_weight: bool) -> tuple[Any, str]:
    def shown(of: Meaning) -> str:
        return f"{of['bits']} bits ({of['low']}..{of['high']})"

    if stored["bits"] != own["bits"]:
        options = ("weight_bits", "first_last_bits") if is_weight else ("activation_bits", "input_bits")
        return shown, f"{options[0]}, or {options[1]}, to those of the state"
    midrise = [of["high"] == 2 ** of["bits"] - 1 and of["low"] < 0 for of in (stored, own)]
    if midrise[0] != midrise[1]:
        return shown, f"weight_levels to {'midrise' if midrise[0] else 'midtread'}"
    if (stored["low"] < 0) == (own["low"] < 0):
        return shown, f"IntGrid to narrow={stored['high'] == -stored['low']}"
    signed, kinds = stored["low"] < 0, (stored["scale"], own["scale"])
    if sum("AsymmetricScale" in kind for kind in kinds) == 1:
        return shown, f"asymmetric={'AsymmetricScale' in stored['scale']}"
    rest = "for the network's input; the sign of others follows from the activation before them"
    return shown, f"input_signed={signed} ({rest})"


def _scale(stored: Meaning, own: Meaning, is_weight: bool) -> tuple[Any, str]:
    def shown(of: Meaning) -> str:
        return f"a scale of the kind {of['scale']}"

    theirs, ours = (meaning["scale"] for meaning in (stored, own))
    if ("PowerOfTwo" in theirs) != ("PowerOfTwo" in ours):
        return shown, f"power_of_two={'PowerOfTwo' in theirs}"
    if ("AsymmetricScale" in theirs) != ("AsymmetricScale" in ours):
        return shown, f"asymmetric={'AsymmetricScale' in theirs}"
    return shown, f"{'weight_scale' if is_weight else 'activation_scale'} to that of the state"
