"""The linear layer whose operands are quantized."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class QuantLinear(nn.Linear):
    """`nn.Linear` on a quantized input and weight; the bias stays float.

    Args:
        weight_quantizer: a `Quantizer`, or `nn.Identity()`.
        input_quantizer: the same; `nn.Identity()` where the input comes from a quantized activation.
        The other arguments are those of `nn.Linear`. With two identities the layer equals it bit for bit.

    Shape: `(N, ..., I)` -> `(N, ..., O)`, weight `(O, I)`.
    """

    def __init__(
        self, *args: Any, weight_quantizer: nn.Module, input_quantizer: nn.Module, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.weight_quantizer = weight_quantizer
        self.input_quantizer = input_quantizer

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(self.input_quantizer(input), self.weight_quantizer(self.weight), self.bias)
