"""A first convolution that whitens the patches of the images."""

from typing import Any

import torch
from torch import Tensor, nn

from qat.data import ImageData

IMAGES = 5000
SMALLEST_VARIANCE = 5e-4  # added to the variances, so that directions without content are not amplified


@torch.no_grad()
def whitening_filters(images: Tensor, filters: int, size: tuple[int, int]) -> Tensor:
    """Filters whose outputs over patches of the images are uncorrelated, with a variance near 1.

    They are the eigenvectors v of the covariance of the patches with the largest eigenvalues a, as
    `v / sqrt(a + 5e-4)`, then the same with the other sign, since a ReLU follows.

    Shape: images `(N, C, H, W)` in [0, 1] -> `(filters, C, *size)`.

    Raises:
        ValueError: the number of filters is odd, or more than twice the number of values in a patch.

    Source: Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU", section 3.2.
    """
    values = images.shape[1] * size[0] * size[1]
    if filters % 2 or filters > 2 * values:
        rule = f"whiten needs a first convolution with an even number of at most {2 * values} channels"
        raise ValueError(f"{rule}, got {filters}; leave whiten out")
    patches = images.unfold(2, size[0], 1).unfold(3, size[1], 1).transpose(1, 3).transpose(1, 2)
    rows = patches.reshape(-1, values).double()
    variances, directions = torch.linalg.eigh(torch.cov(rows.T))
    scaled = (directions / (variances + SMALLEST_VARIANCE).sqrt()).T.flip(0)[: filters // 2]
    half = scaled.reshape(-1, images.shape[1], *size).float()
    return torch.cat([half, -half])


def whitened_layer(model: nn.Module) -> nn.Conv2d:
    """The first convolution of a model, with a weight that no longer trains.

    Raises:
        ValueError: the first layer is no Conv2d over all channels.
    """
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)), None)
    if not isinstance(first, nn.Conv2d) or first.groups != 1:
        raise ValueError("whiten needs a network whose first layer is a Conv2d without groups; leave it out")
    first.weight.requires_grad_(False)
    return first


def whiten_by_images(layer: nn.Conv2d, data: Any) -> None:
    """Set the weight of a whitened layer by training images.

    Raises:
        ValueError: data is no `ImageData`, or the layer has another number of channels than filters allow.
    """
    if not isinstance(data, ImageData):
        raise ValueError("whiten needs the training images of qat.data.ImageData; give it as datamodule")
    height, width = layer.kernel_size
    layer.weight.data.copy_(whitening_filters(data.sample(IMAGES), layer.out_channels, (height, width)))
