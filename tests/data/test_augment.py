import pytest
import torch
from torch import Tensor

from qat.data.augment import CropFlip, crop_flip


def one_by_one(images: Tensor, top: Tensor, left: Tensor, flip: Tensor) -> Tensor:
    out = torch.zeros_like(images)
    height, width = images.shape[-2:]
    for n in range(len(images)):
        for y in range(height):
            for x in range(width):
                from_y, from_x = y + int(top[n]) - 4, (width - 1 - x if flip[n] else x) + int(left[n]) - 4
                if 0 <= from_y < height and 0 <= from_x < width:
                    out[n, :, y, x] = images[n, :, from_y, from_x]
    return out


def test_crop_flip_equals_the_loop_over_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (40, 3, 7, 5), generator=generator, dtype=torch.uint8)
    top, left = torch.randint(0, 9, (2, 40), generator=generator)
    flip = torch.arange(40) % 2 == 0
    out = crop_flip(images, top, left, flip)
    assert out.dtype == torch.uint8
    assert torch.equal(out, one_by_one(images, top, left, flip))


def test_the_middle_crop_is_the_image() -> None:
    images = torch.arange(2 * 3 * 36, dtype=torch.uint8).view(2, 3, 6, 6)
    middle = torch.full((2,), 4)
    assert torch.equal(crop_flip(images, middle, middle, torch.tensor([False, False])), images)
    assert torch.equal(crop_flip(images, middle, middle, torch.tensor([True, True])), images.flip(-1))


def test_choices_are_uniform() -> None:
    augment = CropFlip(90_000, 3, seed=0)
    for choice in (augment.top, augment.left):
        counts = choice.bincount(minlength=9)
        assert len(counts) == 9
        assert (counts - 10_000).abs().max() < 500  # 5 standard deviations
    assert abs(int(augment.flip.sum()) - 45_000) < 750
    pairs = (augment.top * 9 + augment.left).bincount(minlength=81)
    assert (pairs - 90_000 / 81).abs().max() < 170


def test_digits_are_never_mirrored() -> None:
    assert not CropFlip(1000, 1, seed=0).flip.any()


def choices(seed: int, epoch: int) -> Tensor:
    augment = CropFlip(50, 3, seed)
    augment.set_epoch(epoch)
    return torch.stack([augment.top, augment.left, augment.flip.long()])


def test_choices_are_those_of_seed_and_epoch() -> None:
    assert torch.equal(choices(3, 5), choices(3, 5))
    keys = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    for i, key in enumerate(keys):
        for other in keys[:i]:
            assert not torch.equal(choices(*key), choices(*other))


def test_an_image_is_treated_alike_in_any_batch() -> None:
    augment = CropFlip(20, 3, seed=1)
    images = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8)
    whole = augment(images, torch.arange(20))
    for index in (torch.tensor([4, 19, 4]), torch.tensor([7])):
        assert torch.equal(augment(images[index], index), whole[index])


@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_the_global_generator_never_moves(seed: int) -> None:
    before = torch.get_rng_state()
    augment = CropFlip(10, 3, seed)
    augment.set_epoch(7)
    augment(torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.arange(10))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_alternating_flip_shows_each_image_both_ways() -> None:
    augment = CropFlip(1000, 3, 5, "alternating")
    flips = []
    for epoch in range(4):
        augment.set_epoch(epoch)
        flips.append(augment.flip)
    assert 400 < flips[0].sum() < 600
    assert torch.equal(flips[1], ~flips[0])
    assert torch.equal(flips[2], flips[0])
    assert torch.equal(flips[3], flips[1])
    assert not CropFlip(1000, 1, 5, "alternating").flip.any()
    random = CropFlip(1000, 3, 5)
    random.set_epoch(3)
    assert torch.equal(random.top, augment.top)


@pytest.mark.parametrize("shift", [0, 2, 5])
def test_the_largest_shift(shift: int) -> None:
    augment = CropFlip(2000, 1, 0, shift=shift)
    assert (augment.top.min(), augment.top.max()) == (0, 2 * shift)
    images = torch.randint(1, 256, (2000, 1, 6, 6), dtype=torch.uint8)
    out = augment(images, torch.arange(2000))
    expected = crop_flip(images, augment.top + 8 - shift, augment.left + 8 - shift, augment.flip, 8)
    assert torch.equal(out, expected)
