"""The linear layer with quantized operands."""

import torch.nn.functional as F
from torch import Tensor, nn

from qat.layers.layer import QuantLayer


class QuantLinear(QuantLayer, nn.Linear):
    """`nn.Linear` on a quantized input and weight.

    Shape: `(N, ..., I)` -> `(N, ..., O)`, weight `(O, I)`.
    """

    def operator(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(input, weight, bias)
