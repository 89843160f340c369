"""Other threads run a model, or draw random numbers, while an example runs."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qat import Quantization, quantize
from qat.layers import summary
from qat.layers.private_random import PrivateRandom
from qat.models import SmallCNN


def beside(work: Callable[[], Any], other: Callable[[], Any]) -> list[Any]:
    """Results of `other`, which a second thread calls until `work` has ended here."""
    results: list[Any] = []
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            try:
                results.append(other())
            except Exception as error:
                results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        work()
    finally:
        ended.set()
        thread.join()
    return results


def test_an_evaluation_beside_a_summary() -> None:
    model = quantize(SmallCNN((1, 12, 12)), Quantization(), torch.rand(2, 1, 12, 12)).eval()
    x = torch.rand(2, 1, 12, 12)
    with torch.no_grad():
        expected = model(x)

    @torch.no_grad()
    def forward() -> bool:
        return torch.equal(model(x), expected)

    rows: list[int] = []
    results = beside(lambda: rows.extend(len(summary(model, x).rows) for _ in range(20)), forward)
    assert results
    assert [r for r in results if r is not True] == []
    assert set(rows) == {rows[0]}


class Noisy(nn.Module):
    """Draws in all the ways that a forward may."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.rand(8) + torch.randn_like(x) + torch.randint(0, 2, x.shape)
        x = x * torch.bernoulli(torch.full_like(x, 0.5)) + torch.empty_like(x).normal_()
        x = x[:, torch.randperm(8)] + F.rrelu(x, training=True)
        return self.fc(x)


def test_a_thread_that_draws_beside_quantize_gets_its_own_numbers() -> None:
    # The parameters of a new module are drawn as well, so it is made before.
    models = [Noisy() for _ in range(20)]
    examples = torch.rand(4, 8)
    torch.manual_seed(0)

    def convert() -> None:
        for model in models:
            quantize(model, Quantization(rounding="stochastic"), examples)

    drawn = [float(x) for x in beside(convert, lambda: torch.rand(()))]
    assert len(drawn) > 0
    torch.manual_seed(0)
    assert drawn == [float(torch.rand(())) for _ in drawn]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.rand(3),
        lambda: torch.randn(3, dtype=torch.float64),
        lambda: torch.rand_like(torch.zeros(2, 2)),
        lambda: torch.randint(5, (4,)),
        lambda: torch.randint(-3, 5, (4,)),
        lambda: torch.randint_like(torch.zeros(4), 9),
        lambda: torch.randperm(7),
        lambda: torch.zeros(5).uniform_(),
        lambda: torch.zeros(5).normal_(2, 3),
        lambda: torch.bernoulli(torch.full((9,), 0.4)),
        lambda: torch.zeros(9).bernoulli_(0.3),
        lambda: torch.multinomial(torch.ones(5), 3),
        lambda: torch.normal(torch.zeros(3), 2.0),
        lambda: F.dropout(torch.ones(20), 0.5),
        lambda: F.rrelu(-torch.ones(20), training=True),
        lambda: torch.empty(3).exponential_(),
        lambda: torch.rand(2, generator=torch.Generator().manual_seed(4)),
    ],
)
def test_private_numbers_are_those_of_the_global_generator(draw: Callable[[], Tensor]) -> None:
    torch.manual_seed(3)
    expected = draw()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    with PrivateRandom():
        assert torch.equal(draw(), expected)
    assert torch.equal(torch.get_rng_state(), state)
