"""The memory study: it measures what was asked for, and notices modes that differ."""

import pytest
import torch

from qat.measure import memory_study as module
from qat.measure.growth import Growth
from qat.measure.memory_study import MemoryRow, StudyOptions, check_study, run_study, train_in_turn
from qat.measure.modes import FLOAT, MEMORY_MODES, PACKED, PACKED_CHECKPOINTED, reference_of
from qat.measure.rounds import Timing
from qat.measure.step import TrainStep
from qat.measure.workload import Workload

WORKLOAD = Workload("resnet8", image=(3, 8, 8), batch=4)


def empty_rows() -> dict[str, MemoryRow]:
    return {name: MemoryRow(0, Timing(name)) for name in MEMORY_MODES}


def test_all_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1000 bytes, and 100 per image.
    monkeypatch.setattr(module, "growth", lambda _workload, _name, size: Growth(1000 + 100 * size, 7))
    announced: list[float] = []
    options = StudyOptions(3, (2, 4), "11kB")
    study = run_study(WORKLOAD, options, lambda _, size=1.0: announced.append(size))
    assert sum(announced) == options.work
    assert tuple(study.rows) == MEMORY_MODES
    for name, row in study.rows.items():
        assert row.saved == WORKLOAD.train_step(name).saved_bytes(WORKLOAD.random_batch()[0])
        assert (row.peak, row.held) == (1400, 7)
        assert row.identical == (reference_of(name) and True)
    assert study.rows[PACKED_CHECKPOINTED].saved < 0.1 * study.rows[FLOAT].saved
    assert study.budget is not None
    assert set(study.budget.largest.values()) == {100}
    assert study.depth is not None
    assert study.depth.depths == [2, 4]


def test_nothing_that_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "growth", lambda *_: Growth(1, 1))
    announced: list[float] = []
    study = run_study(WORKLOAD, StudyOptions(3), lambda _, size=1.0: announced.append(size))
    assert (study.depth, study.budget) == (None, None)
    assert sum(announced) == StudyOptions(3).work


def test_every_mode_equals_its_reference() -> None:
    rows, announced = empty_rows(), []
    train_in_turn(WORKLOAD, 4, rows, announced.append)
    assert sorted(announced) == sorted([f"training: {name}" for name in MEMORY_MODES] * 4)
    assert {name: row.identical for name, row in rows.items()} == {
        name: None if reference_of(name) is None else True for name in MEMORY_MODES
    }
    assert all(len(row.timing.seconds) == 3 and min(row.timing.seconds) > 0 for row in rows.values())


@pytest.mark.parametrize("what", ["loss", "gradient", "state"])
def test_a_difference_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spoilt(TrainStep):
        def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            loss = super().__call__(images, labels)
            if self.mode.packed:
                {
                    "loss": loss,
                    "gradient": self.network.fc.bias.grad,
                    "state": self.network.stem[1].num_batches_tracked,
                }[what].add_(1)
            return loss

    monkeypatch.setattr("qat.measure.workload.TrainStep", Spoilt)
    rows = empty_rows()
    train_in_turn(WORKLOAD, 3, rows, lambda _: None)
    assert [name for name, row in rows.items() if row.identical is False] == [PACKED, PACKED_CHECKPOINTED]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 2}, "rounds must be at least 3, the first of which is not timed; got 2"),
        ({"depth": (8,)}, "depth must be two or more numbers of blocks, as in 8 16 32; got 8$"),
        ({"depth": (8, 8)}, "depth must be two or more numbers of blocks, as in 8 16 32; got 8 8$"),
        ({"depth": (0, 8)}, "depth must be two or more numbers of blocks, as in 8 16 32; got 0 8$"),
        ({"budget": "much"}, "budget must be a number of bytes, as in 2GB or 512MiB; got 'much'"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StudyOptions(**options)


def test_bad_combinations_are_found_before_any_work() -> None:
    with pytest.raises(ValueError, match="batch must be at least 4 with a budget"):
        check_study(Workload(batch=3), StudyOptions(budget="2GB"))
    with pytest.raises(ValueError, match="checkpoint pattern 'block"):
        check_study(Workload("resnet8", checkpoint=("block.*",)), StudyOptions())
