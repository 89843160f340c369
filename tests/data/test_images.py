import numpy as np
import torch
from torch.utils.data import DataLoader

from qat.data.augment import CropFlip
from qat.data.images import Images


def every_byte() -> Images:
    return Images(torch.arange(256, dtype=torch.uint8).view(16, 1, 4, 4), torch.arange(16))


def test_values_are_bytes_divided_by_255() -> None:
    images, labels = every_byte().__getitems__(list(range(16)))
    expected = np.arange(256, dtype=np.float32) / np.float32(255)
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert torch.equal(images.flatten(), torch.from_numpy(expected))


def test_grid_of_scale_1_255_gives_the_bytes_back() -> None:
    images, _ = every_byte().__getitems__(list(range(16)))
    assert torch.equal((images / torch.tensor(1 / 255)).round(), torch.arange(256.0).view(16, 1, 4, 4))


def test_a_batch_follows_its_indices_and_leaves_the_bytes_alone() -> None:
    data = every_byte()
    images, labels = data.__getitems__([7, 0, 7])
    assert labels.tolist() == [7, 0, 7]
    assert torch.equal(images, data.images[[7, 0, 7]] / 255)
    assert torch.equal(data.images, every_byte().images)


def test_one_image() -> None:
    image, label = every_byte()[3]
    assert torch.equal(image, torch.arange(48, 64).view(1, 4, 4) / 255)
    assert label == 3


def test_the_standard_loader_reads_whole_batches() -> None:
    class Counted(Images):
        sizes: list[int] = []  # noqa: RUF012

        def __getitems__(self, indices):
            self.sizes.append(len(indices))
            return super().__getitems__(indices)

    data = every_byte()
    loader = DataLoader(Counted(data.images, data.labels), batch_size=6, collate_fn=tuple)
    assert [labels.tolist() for _, labels in loader] == [[*range(6)], [*range(6, 12)], [*range(12, 16)]]
    assert Counted.sizes == [6, 6, 4]


def test_the_epoch_reaches_the_augmentation() -> None:
    data = Images(
        torch.arange(256, dtype=torch.uint8).view(16, 1, 4, 4), torch.arange(16), CropFlip(16, 1, 0)
    )
    indices = list(range(16))
    first, _ = data.__getitems__(indices)
    data.set_epoch(1)
    second, _ = data.__getitems__(indices)
    data.set_epoch(0)
    assert not torch.equal(first, second)
    assert torch.equal(data.__getitems__(indices)[0], first)
