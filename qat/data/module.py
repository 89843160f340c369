"""The LightningDataModule for every image data set."""

from functools import cached_property
from numbers import Integral, Real
from typing import Any, get_args

import torch
from lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from qat.data.augment import SHIFT, CropFlip, FlipName
from qat.data.images import Batch, Images
from qat.data.order import EpochLoader, EpochSampler, EvaluationSampler
from qat.data.sources import DataName, find_source, resolve_root
from qat.data.split import alternating_order, stratified_split
from qat.names import unknown_name
from qat.options import check_seed


class ImageData(LightningDataModule):
    """Images in memory, as batches for training, validation and test.

    Batches are `(images, labels)`: float32 `(B, C, H, W)` in [0, 1] and int64 `(B,)`. The validation images
    are a fixed part of the training set, the same for each seed. Training leaves out the last batch if it is
    short, unless it is the only one; validation and test use all images. In both, and in training with
    `overfit_batches`, the classes alternate in a fixed order, so that the first batches hold all of them.

    Args:
        name: mnist5k (4,000 + 1,000 images, no download), mnist, cifar10, or folder: `train/` and `test/` in
            the data root, each with one folder of images per class. Classes are numbered in natural order:
            1, 2, 10. All images must have one size; they are turned upright as their EXIF data say, laid on
            white where they are transparent, and read in colour if at least one of them is. A file of more
            than 8 bits a channel or of several pictures is an error.
        data_root: the folder of the data; by default the environment variable QAT_DATA, or `data`.
        batch_size: images per batch and process.
        augment: shift training images at random, and mirror half of them if they are in colour.
        seed: decides the order and the augmentation of each epoch, 0 to 2^32 - 1.
        val_fraction: the fraction of the training images of each class that is used for validation, between 0
            and 1.
        flip: with `augment`, which half is mirrored: `random` in each epoch, or `alternating` between a half
            and the other one.
        shift: with `augment`, the largest shift in pixels, 0 to 16. Small networks and short runs learn more
            from shifts of 2.

    Raises:
        ValueError: an argument is out of range; the data is missing, damaged or cannot be downloaded.
    """

    def __init__(
        self,
        name: DataName = "mnist5k",
        data_root: str | None = None,
        batch_size: int = 128,
        augment: bool = False,
        seed: int = 0,
        val_fraction: float = 0.1,
        flip: FlipName = "random",
        shift: int = SHIFT,
    ) -> None:
        super().__init__()
        self.source = find_source(name)
        self.root = resolve_root(data_root)
        if not _is_number(batch_size, Integral) or not 1 <= batch_size < 2**31:
            rule = f"batch_size must be 1 to 2^31 - 1 images, got {batch_size!r}"
            raise ValueError(f"{rule}; 128 is a good start")
        if not isinstance(augment, bool):
            raise ValueError(f"augment must be true or false, got {augment!r}; leave it out for false")
        if flip not in get_args(FlipName):
            raise unknown_name("flip", flip, get_args(FlipName))
        if flip != "random" and not augment:
            raise ValueError(f"flip must be left out without augment, which mirrors images; got {flip!r}")
        if not _is_number(shift, Integral) or not 0 <= shift <= 16:
            raise ValueError(f"shift must be 0 to 16 pixels, got {shift!r}; 4 is the default")
        if shift != SHIFT and not augment:
            raise ValueError(f"shift must be left out without augment, which shifts images; got {shift}")
        check_seed("seed", seed)
        if not _is_number(val_fraction, Real) or not 0 < val_fraction < 1:
            rule = f"val_fraction must be between 0 and 1, got {val_fraction!r}"
            raise ValueError(f"{rule}; 0.1 keeps a tenth")
        self.batch_size, self.augment, self.flip, self.seed = batch_size, augment, flip, seed
        self.shift = shift
        self.val_fraction = val_fraction

    def prepare_data(self) -> None:
        """Download or decode what is missing; Lightning calls it in one process of each machine."""
        self.source.prepare(self.root)

    def setup(self, stage: str = "fit") -> None:
        """Load the images into memory, once."""
        _ = self.parts

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The name of each class, in the order of the labels."""
        return self.source.class_names(self.root)

    @cached_property
    def parts(self) -> tuple[Images, Images, Images]:
        """The images for training, validation and test."""
        data = self.source.load(self.root)
        train, val = stratified_split(data.train_labels, self.val_fraction)
        if not len(val):
            raise ValueError(
                f"data_root: validation needs 2 training images of a class, got 1 of each in"
                f" {self.root.absolute()}; add images"
            )
        val = val[alternating_order(data.train_labels[val])]
        test = alternating_order(data.test_labels)
        channels = data.train_images.shape[1]
        crop_flip = CropFlip(len(train), channels, self.seed, self.flip, self.shift) if self.augment else None
        return (
            Images(data.train_images[train], data.train_labels[train], crop_flip),
            Images(data.train_images[val], data.train_labels[val]),
            Images(data.test_images[test], data.test_labels[test]),
        )

    def train_dataloader(self) -> DataLoader[Batch]:
        """Training batches in the order of (seed, epoch); each process gets its share."""
        dataset = self.parts[0]
        if getattr(self.trainer, "overfit_batches", 0):  # Lightning then takes the images as they come
            order = alternating_order(dataset.labels).tolist()
            subset = Subset(dataset, order)
            return self._loader(EpochLoader, subset, drop_last=len(order) > self.batch_size)
        sampler = EpochSampler(dataset, self.seed, *self._place())
        return self._loader(EpochLoader, dataset, sampler=sampler, drop_last=len(sampler) > self.batch_size)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Validation batches, in which the classes alternate; each process gets its share."""
        return self._evaluation_loader(self.parts[1])

    def test_dataloader(self) -> DataLoader[Batch]:
        """Test batches, in which the classes alternate; each process gets its share."""
        return self._evaluation_loader(self.parts[2])

    def sample(self, count: int) -> Tensor:
        """Evenly spaced training images, not augmented: floats in [0, 1].

        Shape: `(count, C, H, W)`, or all images if there are fewer.
        """
        images = self.parts[0].images
        return images[:: max(1, len(images) // count)][:count].float() / 255

    def _place(self) -> tuple[int, int]:
        """The number of processes, and this one's among them."""
        return (self.trainer.world_size, self.trainer.global_rank) if self.trainer else (1, 0)

    def _evaluation_loader(self, dataset: Images) -> DataLoader[Batch]:
        processes, rank = self._place()
        if processes == 1:
            return self._loader(DataLoader, dataset)
        return self._loader(DataLoader, dataset, sampler=EvaluationSampler(dataset, processes, rank))

    def _loader(
        self, kind: type[DataLoader[Batch]], dataset: Dataset[Batch], **options: Any
    ) -> DataLoader[Batch]:
        # No workers: reading a batch from memory is cheaper than passing it on from another process.
        # The loader draws a number each time it starts, here from a separate generator, not the global one.
        return kind(
            dataset,
            self.batch_size,
            collate_fn=tuple,  # a batch of `Images` is whole already: a tuple of images and labels
            generator=torch.Generator(),
            **options,
        )


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
