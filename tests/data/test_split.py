import pytest
import torch

from qat.data.split import stratified_split

LABELS = torch.arange(3).repeat(100)
FIXED = [2, 37, 41, 57, 85, 104, 127, 128, 132, 205, 270, 279]  # 4 % of LABELS


@pytest.mark.parametrize(("fraction", "count"), [(0.1, 10), (0.29, 29), (0.001, 1), (0.999, 99)])
def test_the_parts_are_stratified_disjoint_and_whole(fraction: float, count: int) -> None:
    rest, taken = stratified_split(LABELS, fraction)
    assert torch.equal(LABELS[taken].bincount(), torch.tensor([count] * 3))
    assert torch.equal(torch.cat([rest, taken]).sort().values, torch.arange(300))
    assert torch.equal(rest, rest.sort().values)
    assert torch.equal(taken, taken.sort().values)


def test_the_split_is_fixed() -> None:
    # Written down: a validation set must not change with a version of torch or a platform either.
    _, taken = stratified_split(LABELS, 0.04)
    assert taken.tolist() == FIXED


def test_the_split_ignores_and_keeps_the_global_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    _, taken = stratified_split(LABELS, 0.04)
    assert taken.tolist() == FIXED
    assert torch.equal(torch.get_rng_state(), before)


def test_it_is_spread_over_the_class() -> None:
    _, taken = stratified_split(torch.zeros(1000, dtype=torch.int64), 0.5)
    assert 200 < int((taken < 500).sum()) < 300


def test_single_images_stay_in_the_rest() -> None:
    rest, taken = stratified_split(torch.tensor([0, 1, 1]), 0.9)
    assert (len(rest), len(taken)) == (2, 1)
    assert 0 in rest
