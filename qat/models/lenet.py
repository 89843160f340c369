"""LeNet-5 with ReLU and max-pooling (LeCun et al. 1998, section II.B)."""

from torch import Tensor, nn


class LeNet(nn.Module):
    """Two 5x5 convolutions and three linear layers; 61,706 parameters for 1x28x28 and 10 classes.

    Args:
        input_shape: `(C, H, W)` of one image; H and W at least 12.
        classes: number of logits.

    Raises:
        ValueError: the images are too small.

    Shape: `(N, C, H, W)` -> `(N, classes)`.
    """

    def __init__(self, input_shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10) -> None:
        super().__init__()
        if min(input_shape[1:]) < 12:
            raise ValueError(f"LeNet needs images of at least 12x12, got input_shape {tuple(input_shape)}")
        channels, height, width = input_shape
        features = 16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
        self.blocks = nn.Sequential(
            nn.Sequential(nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Sequential(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.flatten = nn.Flatten()
        self.head = nn.Sequential(
            nn.Linear(features, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.flatten(self.blocks(x)))
