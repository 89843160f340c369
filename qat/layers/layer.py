"""What every quantized layer has: two quantizers, one for each operand."""

from typing import Any, ClassVar, cast

from torch import Tensor, nn


class QuantLayer(nn.Module):
    """Abstract: comes before torch's layer in the bases of a quantized one, which adds `forward` alone.

    Args:
        weight_quantizer: a `Quantizer`, or `nn.Identity()`.
        input_quantizer: the same; `nn.Identity()` where the input comes from a quantized activation.
        The other arguments are those of torch's layer. With two identities the layer equals it bit for bit.

    The bias stays float.
    """

    channel_axis: ClassVar[int] = 0  # the weight's axis of output channels, each with a scale of its own

    def __init__(
        self, *args: Any, weight_quantizer: nn.Module, input_quantizer: nn.Module, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.weight_quantizer = weight_quantizer
        self.input_quantizer = input_quantizer

    @property
    def effective_weight(self) -> Tensor:
        """The weight that is quantized: its own, unless a BatchNorm is folded into it first."""
        return cast(Tensor, self.weight)

    @property
    def effective_bias(self) -> Tensor | None:
        """The bias that is added in eval mode."""
        return cast("Tensor | None", self.bias)
