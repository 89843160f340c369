"""Every file in configs/ binds, and runs one training and one validation batch."""

from pathlib import Path

import pytest
import torch
import yaml
from torch.utils.data import DataLoader, TensorDataset

from qat.cli.lightning_cli import TrainCLI
from qat.data import ImageData
from qat.experiment.comparison import read_comparison
from qat.experiment.plan import plan
from qat.memory import Checkpointed

CONFIGS = sorted(
    path
    for path in (Path(__file__).parents[1] / "configs").glob("*.yaml")
    if not path.stem.startswith(("compare", "ablation"))
)


class FakeData(ImageData):
    """Random images of the right shape: no file is read, no network used."""

    def prepare_data(self) -> None:
        pass

    def setup(self, stage: str = "fit") -> None:
        pass

    def _fake(self) -> DataLoader[tuple[torch.Tensor, ...]]:
        generator = torch.Generator().manual_seed(0)
        shape, classes = self.source.shape(self.root)
        images = torch.rand(8, *shape, generator=generator)
        return DataLoader(TensorDataset(images, torch.arange(8) % classes), 8)

    train_dataloader = val_dataloader = _fake


def test_there_are_configs() -> None:
    assert {path.stem for path in CONFIGS} >= {
        "mnist_float",
        "mnist_w4a4",
        "mnist_zero",
        "cifar10_resnet8_w4a4",
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qat.cli.lightning_cli.ImageData", FakeData)
    monkeypatch.chdir(tmp_path)
    options = ["--trainer.fast_dev_run", "true", "--trainer.accelerator", "cpu"]
    shown = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
    cli = TrainCLI("fit", ["--config", str(path), *options, *shown])
    cli.run()
    text = path.read_text()
    settings = yaml.safe_load(text)
    assert text.startswith("# ")
    assert cli.trainer.global_step == 1
    assert {"train_loss", "val_loss", "val_accuracy"} <= cli.trainer.callback_metrics.keys()
    assert settings["trainer"]["deterministic"] is True
    assert settings["trainer"]["default_root_dir"] == f"runs/{path.stem}"
    assert settings["seed_everything"] == cli.model.seed == cli.datamodule.seed
    blocks = [module for module in cli.model.modules() if isinstance(module, Checkpointed)]
    assert bool(blocks) == ("checkpointed" in path.stem)
    assert settings["model"].get("pack", False) == ("packed" in path.stem)
    bits = settings["model"]["quantization"]["weight_bits"]
    assert (bits == 32) == ("float" in path.stem)
    assert list(tmp_path.iterdir()) == []


def test_the_ablation_is_a_plan_of_different_runs() -> None:
    comparison = read_comparison(Path(__file__).parents[1] / "configs/ablation_w2a2.yaml")
    assert next(iter(comparison.setups)) == "base"
    assert not comparison.setups["base"].options
    assert len(plan(comparison, {})) == 3 * len(comparison.setups) > 40
