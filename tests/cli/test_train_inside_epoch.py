"""A run that ends inside an epoch goes on there when it is resumed, or is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import Timer

from tests.cli.test_train_resume import differences, load

Fit = Callable[..., None]
LAST = Path("checkpoints/last.ckpt")
OPTIONS = {
    "plain": [],
    "accumulated": ["--trainer.accumulate_grad_batches", "2"],
    "validated": ["--trainer.val_check_interval", "2"],
    "phases": [
        *("--model.float_epochs", "1", "--model.freeze_epoch", "2"),
        *("--model.freeze_batchnorm_epoch", "1"),
    ],
    "oscillating": [
        *("--model.freeze_oscillating", "0.001", "--model.dampening", "0.1"),
        *("--model.optimizer", "sgd", "--model.learning_rate", "0.1"),
    ],
}


@pytest.fixture
def end(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`end(batches, *options)`: a run that `max_time` ends after so many batches."""

    def run(batches: int, *options: str) -> Path:
        def look_at_the_clock(self: Timer, trainer: Trainer) -> None:
            trainer.should_stop |= trainer.fit_loop.total_batch_idx + 1 >= batches

        with monkeypatch.context() as patch:
            patch.setattr(Timer, "_check_time_remaining", look_at_the_clock)
            fit(tmp_path / "run", *options, "--trainer.max_time", "00:01:00:00")
        return tmp_path / "run" / "version_0" / LAST

    return run


@pytest.mark.parametrize(
    ("options", "batches", "step"),
    [
        ("plain", 1, 1),
        pytest.param("plain", 7, 7, marks=pytest.mark.slow),
        pytest.param("plain", 8, 8, marks=pytest.mark.slow),
        ("accumulated", 7, 4),  # four steps of two batches: a part of a step is in no file
        ("validated", 5, 5),
        pytest.param("validated", 6, 6, marks=pytest.mark.slow),
        ("phases", 5, 5),
        pytest.param("oscillating", 5, 5, marks=pytest.mark.slow),
        pytest.param("phases", 11, 11, marks=pytest.mark.slow),
    ],
)
def test_max_time(
    options: str, batches: int, step: int, fit: Fit, end: Callable[..., Path], tmp_path: Path
) -> None:
    last = end(batches, *OPTIONS[options])
    assert torch.load(last, weights_only=True)["global_step"] == step
    fit(tmp_path / "run", *OPTIONS[options], "--ckpt_path", str(last))
    fit(tmp_path / "whole", *OPTIONS[options])
    assert differences(load(tmp_path / "whole/version_0"), load(tmp_path / "run/version_1")) == []


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ("plain", 4),
        pytest.param("plain", 7, marks=pytest.mark.slow),
        ("accumulated", 2),
        pytest.param("validated", 5, marks=pytest.mark.slow),
    ],
)
def test_max_steps(options: str, steps: int, fit: Fit, tmp_path: Path) -> None:
    fit(tmp_path / "run", *OPTIONS[options], "--trainer.max_steps", str(steps))
    last = tmp_path / "run" / "version_0" / LAST
    assert torch.load(last, weights_only=True)["global_step"] == steps
    fit(tmp_path / "run", *OPTIONS[options], "--ckpt_path", str(last))
    fit(tmp_path / "whole", *OPTIONS[options])
    assert differences(load(tmp_path / "whole/version_0"), load(tmp_path / "run/version_1")) == []


def refused(capsys: pytest.CaptureFixture[str], run: Callable[[], None]) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        run()
    err = capsys.readouterr().err
    assert (stop.value.code, err.count("\n")) == (2, 1)
    return err


def test_other_batches_are_refused_inside_an_epoch(fit: Fit, tmp_path: Path, capsys: Any) -> None:
    fit(tmp_path, "--trainer.max_steps", "2")
    last = str(tmp_path / "version_0" / LAST)
    for options, message in (
        (["--data.batch_size", "64"], "was saved inside an epoch: batch_size must be as before to go on"),
        (["--seed_everything", "3"], "seed must be as before"),
        (["--data.val_fraction", "0.3"], "images must be as before"),
        (["--trainer.max_steps", "2"], "trainer.max_steps must be above 2, the steps that ckpt_path holds"),
    ):
        assert message in refused(capsys, lambda: fit(tmp_path, *options, "--ckpt_path", last))  # noqa: B023
    assert not (tmp_path / "version_1").exists()


def test_overfit_batches_go_on_at_the_end_of_an_epoch_alone(fit: Fit, tmp_path: Path, capsys: Any) -> None:
    options = ["--trainer.overfit_batches", "4"]
    for steps in ("2", "4"):
        fit(tmp_path, *options, "--trainer.max_steps", steps)
    message = refused(
        capsys, lambda: fit(tmp_path, *options, "--ckpt_path", str(tmp_path / "version_0" / LAST))
    )
    assert "was saved inside an epoch: overfit_batches must be left out" in message
    fit(tmp_path, *options, "--ckpt_path", str(tmp_path / "version_1" / LAST))


def test_a_part_of_an_optimizer_step_is_refused(fit: Fit, tmp_path: Path, capsys: Any) -> None:
    # Validation inside the step of two batches, after the first.
    options = ["--trainer.accumulate_grad_batches", "2", "--trainer.val_check_interval", "1"]
    fit(tmp_path, *options, "--trainer.max_epochs", "1")
    best = tmp_path / "version_0" / "checkpoints" / "best.ckpt"
    ckpt = torch.load(best, weights_only=True)
    torch.save(ckpt | {"pending_gradients": True}, best)
    message = refused(capsys, lambda: fit(tmp_path, *options, "--ckpt_path", str(best)))
    assert "ckpt_path must hold whole optimizer steps" in message
