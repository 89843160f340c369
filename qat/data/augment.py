"""Random crop and horizontal flip of whole batches."""

import torch
from torch import Tensor
from torch.nn import functional as F

from qat.data.order import epoch_seed

PADDING = 4


def crop_flip(images: Tensor, top: Tensor, left: Tensor, flip: Tensor) -> Tensor:
    """Shift each image within a border of `PADDING` zero pixels, then mirror it where `flip` is true.

    Shape: images `(N, C, H, W)`, top and left int64 `(N,)` in 0..8 (4 leaves the image in its place), flip
    bool `(N,)` -> `(N, C, H, W)`.
    """
    height, width = images.shape[-2:]
    padded = F.pad(images, (PADDING,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    cropped = windows[torch.arange(len(images)), :, top, left]
    return torch.where(flip[:, None, None, None], cropped.flip(-1), cropped)


class CropFlip:
    """`crop_flip` with random choices that depend on (seed, epoch, image) alone.

    A separate generator draws all choices of an epoch at once. Batch size, number of processes and resuming
    do not change them, and the global generator does not move. Colour images are mirrored with probability
    1/2, grayscale images never, because they may be digits.
    """

    def __init__(self, count: int, channels: int, seed: int) -> None:
        self.count, self.mirror, self.seed = count, channels == 3, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Draw the choices of epoch `epoch` (from 0)."""
        # 2^31 away from the seeds that order the images.
        generator = torch.Generator().manual_seed((epoch_seed(self.seed) + 2**31 + epoch) % 2**32)
        self.top, self.left = torch.randint(0, 2 * PADDING + 1, (2, self.count), generator=generator)
        self.flip = (torch.rand(self.count, generator=generator) < 0.5) & self.mirror

    def __call__(self, images: Tensor, index: Tensor) -> Tensor:
        """Images `(N, C, H, W)` whose numbers in the data set are `index` `(N,)` -> the same shape."""
        return crop_flip(images, self.top[index], self.left[index], self.flip[index])
