"""Whether a quantizer computes what `Quantizer` states, which whoever stores its codes relies on."""

from typing import Any, TypeGuard

from qat.quantizers.quantizer import Quantizer

# What decides the values and codes.
METHODS = (
    "forward",
    "codes",
    "effective_rounding",
    "_first_forward",
    "_fused",
    "_composed",
    "_clamped",
    "_neighbours",
    "_bounds",
)


def follows_formula(module: Any) -> TypeGuard[Quantizer]:
    """Whether the module is a `Quantizer` that computes its values and codes by no code of its own.

    A subclass may override them, and an object may have a forward of its own.
    """
    if not isinstance(module, Quantizer):
        return False
    kind = type(module)
    return all(getattr(kind, m) is getattr(Quantizer, m) and m not in vars(module) for m in METHODS)
