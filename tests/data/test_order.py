import pytest

from qat.data.order import EpochSampler, EvaluationSampler, epoch_seed


class Told:
    def __init__(self, count: int) -> None:
        self.count = count
        self.epochs: list[int] = []

    def __len__(self) -> int:
        return self.count

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


def order(seed: int, epoch: int, replicas: int = 1, rank: int = 0, count: int = 20) -> list[int]:
    sampler = EpochSampler(Told(count), seed, replicas, rank)
    sampler.set_epoch(epoch)
    return list(sampler)


def test_order_is_a_permutation_of_seed_and_epoch() -> None:
    assert order(0, 0) == order(0, 0)
    assert sorted(order(0, 0)) == list(range(20))
    orders = [tuple(order(seed, epoch)) for seed in range(10) for epoch in range(10)]
    assert len(set(orders)) == 100


def test_the_next_epoch_is_not_the_next_seed() -> None:
    assert order(0, 1) != order(1, 0)


def test_seeds_stay_a_million_epochs_apart() -> None:
    starts = sorted(epoch_seed(seed) for seed in range(1000))
    gaps = [b - a for a, b in zip(starts, [*starts[1:], starts[0] + 2**32], strict=True)]
    assert min(gaps) > 1_000_000
    assert all(0 <= start < 2**32 for start in starts)


def test_processes_share_the_images() -> None:
    shares = [order(2, 3, replicas=2, rank=rank) for rank in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(20))
    assert [image for pair in zip(*shares, strict=True) for image in pair] == order(2, 3)


def test_the_data_set_is_told_the_epoch() -> None:
    told = Told(4)
    EpochSampler(told, 0).set_epoch(6)
    assert told.epochs == [6]


@pytest.mark.parametrize(("images", "replicas"), [(7, 2), (7, 4), (8, 4), (4, 4), (9, 4)])
def test_each_image_is_evaluated_once(images: int, replicas: int) -> None:
    shares = [EvaluationSampler(range(images), replicas, rank) for rank in range(replicas)]
    assert sorted(index for share in shares for index in share) == list(range(images))
    assert [len(share) for share in shares] == [len(list(share)) for share in shares]


def test_a_process_without_images_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs an image for each, got 3 in all; use at most 3 devices"):
        EvaluationSampler(range(3), 4, 0)


def test_the_rest_of_an_epoch() -> None:
    sampler = EpochSampler(Told(9), 1)
    whole = list(sampler)
    sampler.skipped = 4
    assert list(sampler) == whole[4:]
    assert list(sampler) == whole
