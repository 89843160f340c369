"""The linear layer whose operands are quantized."""

import torch.nn.functional as F
from torch import Tensor, nn

from qat.layers.layer import QuantLayer


class QuantLinear(QuantLayer, nn.Linear):
    """`nn.Linear` on a quantized input and weight.

    Shape: `(N, ..., I)` -> `(N, ..., O)`, weight `(O, I)`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(self.input_quantizer(input), self.weight_quantizer(self.weight), self.bias)
