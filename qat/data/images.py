"""Image sets: bytes in memory, read as whole float batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from qat.data.augment import CropFlip

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class ImageSet:
    """A data set as bytes: images uint8 `(N, C, H, W)`, labels int64 `(N,)` in 0..classes-1.

    Raises:
        ValueError: a part is of another kind, has no images, or has a label without a class.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        size = self.train_images.shape[1:]
        for images, labels in (self.train_images, self.train_labels), (self.test_images, self.test_labels):
            if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1:] != size:
                got = f"{images.dtype} {tuple(images.shape)}"
                raise ValueError(f"images must be uint8 (N, C, H, W), all of one size, got {got}")
            if labels.dtype != torch.int64 or labels.shape != (len(images),) or not len(labels):
                got = f"{labels.dtype} {tuple(labels.shape)}"
                raise ValueError(f"labels must be int64, one for each of {len(images)} images, got {got}")
            low, high, last = labels.min().item(), labels.max().item(), len(self.class_names) - 1
            if low < 0 or high > last:
                raise ValueError(f"labels must be 0 to {last}, got {low if low < 0 else high}")


class Images(Dataset[Batch]):
    """Uint8 images `(N, C, H, W)` and int64 labels `(N,)`, read as batches: float32 byte / 255, and int64."""

    def __init__(self, images: Tensor, labels: Tensor, augment: CropFlip | None = None) -> None:
        self.images, self.labels, self.augment = images, labels, augment

    def __len__(self) -> int:
        return len(self.images)

    def set_epoch(self, epoch: int) -> None:
        """Use the augmentation of epoch `epoch`; the training sampler calls this."""
        if self.augment is not None:
            self.augment.set_epoch(epoch)

    def __getitem__(self, index: int) -> Batch:
        images, labels = self.__getitems__([index])
        return images[0], labels[0]

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        # torch's loader prefers this method to a __getitem__ for each sample, which costs more than training.
        index = torch.as_tensor(indices, dtype=torch.int64)
        images = self.images[index]
        if self.augment is not None:
            images = self.augment(images, index)
        # Not multiplied by the reciprocal: on a grid with the scale 1/255 the codes are the bytes.
        return images.float().div_(255), self.labels[index]
