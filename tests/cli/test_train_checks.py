"""What `fit` refuses, `test` and `validate` refuse; other precisions train; a dry run writes nothing."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from qat.cli.train import main

Fit = Callable[..., None]
EVALUATION = ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]


def refused(capsys: pytest.CaptureFixture[str], run: Callable[[], None]) -> str:
    """The line of a refused command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        run()
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
    return err


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last.ckpt of a run of one epoch."""
    root = tmp_path_factory.mktemp("run")
    options = [
        "--model.options.width",
        "4",
        "--trainer.limit_train_batches",
        "2",
        "--trainer.max_epochs",
        "1",
    ]
    options += ["--trainer.limit_val_batches", "1", "--trainer.enable_model_summary", "false"]
    main(["fit", *EVALUATION, *options, "--trainer.default_root_dir", str(root)])
    return root / "version_0" / "checkpoints" / "last.ckpt"


@pytest.mark.parametrize("verb", ["fit", "test", "validate"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("weight_scale", "learned", "weight_scale must be observed, that of ckpt_path"),
        ("weight_observer", "mse", "weight_observer must be max, that of ckpt_path"),
        ("weight_bits", "2", "weight_bits must be 4, that of ckpt_path"),
        ("power_of_two", "true", "power_of_two must be False, that of ckpt_path"),
    ],
)
def test_another_quantization(
    verb: str, option: str, value: str, message: str, last: Path, tmp_path: Path, capsys: Any
) -> None:
    words = [verb, *EVALUATION, "--model.options.width", "4", f"--model.quantization.{option}", value]
    words += ["--trainer.default_root_dir", str(tmp_path / "new"), "--ckpt_path", str(last)]
    assert message in refused(capsys, lambda: main(words))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["fit", "test", "validate"])
def test_a_flipped_bit(verb: str, last: Path, tmp_path: Path, capsys: Any) -> None:
    content = bytearray(last.read_bytes())
    content[len(content) // 3] ^= 8
    (tmp_path / "damaged.ckpt").write_bytes(content)
    words = [verb, *EVALUATION, "--model.options.width", "4", "--ckpt_path", str(tmp_path / "damaged.ckpt")]
    assert "damaged.ckpt is not one: it " in refused(capsys, lambda: main(words))


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "bf16-mixed"])
def test_precision(precision: str, short: list[str], tmp_path: Path, capsys: Any) -> None:
    options = [*short[:-1], "true", "--trainer.precision", precision, "--trainer.max_epochs", "1"]
    main(["fit", *options, "--trainer.default_root_dir", str(tmp_path)])
    assert "written to" in capsys.readouterr().out
    last = str(tmp_path / "version_0" / "checkpoints" / "last.ckpt")
    main(["fit", *short, "--trainer.precision", precision, "--ckpt_path", last, "--trainer.max_epochs", "2"])


def test_a_dry_run_writes_nothing(
    short: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["fit", *short, "--trainer.fast_dev_run", "true"])
    assert "written to" not in capsys.readouterr().out
    assert list(tmp_path.rglob("*")) == []


def test_a_full_disk(fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    write, count = Path.write_bytes, iter(range(100))

    def full(self: Path, content: bytes) -> int:
        if ".last.ckpt." in self.name and next(count) == 1:
            write(self, content[:100])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        fit(tmp_path)
    err = capsys.readouterr().err
    assert (stop.value.code, err.count("\n")) == (2, 1)
    assert "No space left on device: " in err
    assert "last.ckpt" in err
    folder = tmp_path / "version_0" / "checkpoints"
    assert torch.load(folder / "last.ckpt", weights_only=True)["epoch"] == 0
    assert sorted(path.name for path in folder.iterdir()) == ["best.ckpt", "last.ckpt"]
