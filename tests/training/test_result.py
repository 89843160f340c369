"""The recorded numbers of a run, checked against a run computed by hand."""

from pathlib import Path

import torch
from lightning import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from qat.training.result import Recorder, digests, versions


class Line(LightningModule):
    """One weight that is used and one that is not. The loss is `w * mean(x)`, its gradient `mean(x)`."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.ParameterDict({"used": torch.ones(1), "unused": torch.ones(1)})

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        loss = self.model["used"].squeeze() * batch[0].mean()
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.log("val_loss", batch[0].mean())
        self.log("val_accuracy", batch[0].min())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


def test_recorder_against_a_run_by_hand(tmp_path: Path) -> None:
    recorder = Recorder()
    loader = DataLoader(TensorDataset(torch.tensor([1.0, 2.0])), 1)
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[recorder],
    )
    trainer.fit(Line(), loader, loader)
    result = recorder.result()
    # w goes 1, 0.5, -0.5, -1, -2; the loss of a step is w * x, its gradient x in {1, 2}.
    assert recorder.step_losses == [1.0, 1.0, -0.5, -2.0]
    assert [epoch["train_loss"] for epoch in result["epochs"]] == [1.0, -1.25]
    assert [epoch["epoch"] for epoch in result["epochs"]] == [0, 1]
    assert [(e["val_loss"], e["val_accuracy"]) for e in result["epochs"]] == [(1.5, 1.5)] * 2
    assert all(epoch["seconds"] > 0 for epoch in result["epochs"])
    assert result["gradient_norm"] == {"used": [1.5, 1.5], "unused": [0.0, 0.0]}
    assert result["displacement"] == {"used": 3.0, "unused": 0.0}


def test_digests_tell_states_apart_to_the_last_bit() -> None:
    model = nn.BatchNorm1d(2)
    before = digests(model)
    assert before.keys() == model.state_dict().keys()
    assert digests(model) == before
    with torch.no_grad():
        model.weight[0] = torch.nextafter(model.weight[0], torch.tensor(2.0))
    assert [key for key, digest in digests(model).items() if digest != before[key]] == ["weight"]


def test_versions_are_text() -> None:
    assert {"qat", "torch", "lightning", "python", "machine"} == versions().keys()
    assert all(isinstance(value, str) and value for value in versions().values())
