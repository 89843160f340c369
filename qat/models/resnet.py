"""Residual networks for CIFAR-10: ResNet-8 of MLPerf Tiny, ResNet-20 and ResNet-56 of He et al."""

from typing import ClassVar

from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm, plus a shortcut, then ReLU.

    The shortcut is the identity, or a 1x1 convolution if the stride is not 1.

    Shape: `(N, C_in, H, W)` -> `(N, C_out, H / stride, W / stride)`.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.act1 = nn.ReLU()
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(in_channels, out_channels, 1, stride)
        self.act2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.act1(self.bn1(self.conv1(x)))
        return self.act2(self.bn2(self.conv2(y)) + self.shortcut(x))


class _ResNet(nn.Module):
    """Abstract: a stem and three stages of residual blocks with 16, 32 and 64 channels.

    Args:
        input_shape: `(C, H, W)` of one image.
        classes: number of logits.

    Shape: `(N, C, H, W)` -> `(N, classes)`.
    """

    blocks_per_stage: ClassVar[int]

    def __init__(self, input_shape: tuple[int, int, int] = (3, 32, 32), classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(input_shape[0], 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.blocks = nn.Sequential()
        for channels_in, channels, stride in [(16, 16, 1), (16, 32, 2), (32, 64, 2)]:
            self.blocks.append(ResidualBlock(channels_in, channels, stride))
            self.blocks.extend(ResidualBlock(channels, channels, 1) for _ in range(self.blocks_per_stage - 1))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.flatten(self.pool(self.blocks(self.stem(x)))))


class ResNet8(_ResNet):
    """One block in each stage; 77,946 parameters for 3x32x32 and 10 classes.

    Source: Banbury et al. 2021, "MLPerf Tiny benchmark", image classification.
    """

    blocks_per_stage = 1


class ResNet20(_ResNet):
    """Three blocks in each stage; 272,378 parameters for 3x32x32 and 10 classes.

    The shortcut at the start of a stage is a 1x1 convolution; in the paper it has no parameters.

    Source: He et al. 2016, "Deep residual learning for image recognition", section 4.2.
    """

    blocks_per_stage = 3


class ResNet56(_ResNet):
    """Nine blocks in each stage; 855,674 parameters for 3x32x32 and 10 classes; see `ResNet20`.

    Source: He et al. 2016, section 4.2.
    """

    blocks_per_stage = 9
