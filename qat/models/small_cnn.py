"""The network of the main comparison: a few conv-BN-ReLU blocks."""

from torch import Tensor, nn


class ConvBlock(nn.Module):
    """3x3 convolution, BatchNorm and ReLU, then 2x2 max-pooling if `pool` is set.

    Shape: `(N, C_in, H, W)` -> `(N, C_out, H, W)`, with H and W halved (rounded down) if `pool` is set.
    """

    def __init__(self, in_channels: int, out_channels: int, pool: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(out_channels)
        self.act = nn.ReLU()
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.act(self.bn(self.conv(x))))


class SmallCNN(nn.Module):
    """Four conv-BN-ReLU blocks, global average pooling, dropout, one linear layer.

    Args:
        input_shape: `(C, H, W)` of one image; H and W at least 8.
        classes: number of logits.
        width: channels of the first block; the others have 2, 4 and 4 times as many.
        dropout: probability of dropping a feature before the linear layer, in [0, 1).

    Raises:
        ValueError: the images are too small.

    Shape: `(N, C, H, W)` -> `(N, classes)`.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int] = (1, 28, 28),
        classes: int = 10,
        width: int = 16,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        if min(input_shape[1:]) < 8:
            raise ValueError(f"SmallCNN needs images of at least 8x8, got input_shape {tuple(input_shape)}")
        self.blocks = nn.Sequential(
            ConvBlock(input_shape[0], width, pool=True),
            ConvBlock(width, 2 * width, pool=True),
            ConvBlock(2 * width, 4 * width, pool=True),
            ConvBlock(4 * width, 4 * width, pool=False),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.dropout(self.flatten(self.pool(self.blocks(x)))))
