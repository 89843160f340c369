"""Equal residual blocks one after another: the network whose depth is swept."""

from torch import Tensor, nn

from qat.models.resnet import ResidualBlock

CHANNELS = 16


class Stack(nn.Module):
    """A stem, `depth` equal residual blocks of 16 channels in segments of `segment`, and a linear layer.

    The blocks lie in `blocks`, a segment each; the last may be shorter.

    Shape: `(N, C, H, W)` -> `(N, 10)`.
    """

    def __init__(self, depth: int, channels: int, segment: int = 1) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, CHANNELS, 3, padding=1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU()
        )
        blocks = [ResidualBlock(CHANNELS, CHANNELS, 1) for _ in range(depth)]
        self.blocks = nn.Sequential(
            *(nn.Sequential(*blocks[start : start + segment]) for start in range(0, depth, segment))
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(CHANNELS, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.flatten(self.pool(self.blocks(self.stem(x)))))
