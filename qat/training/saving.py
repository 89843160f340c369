"""The .ckpt files that a run keeps, the best validation and the last epoch, and how they are written."""

import io
import logging
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint

from qat.training.ckpt import read_ckpt, sealed
from qat.whole_file import write_whole

log = logging.getLogger(__name__)


class WholeCkpts(TorchCheckpointIO):
    """Writes a .ckpt file beside its final name and renames it, and reads none that is damaged.

    Lightning's own plugin writes into the folder for temporary files. Where that lies on another file system,
    the file is then copied over the former one, and neither is left if the process is killed.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a .ckpt file whole; the former one stays as it was if this fails."""
        content = io.BytesIO()
        torch.save(checkpoint, content)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, sealed(content.getvalue()))

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """The content of a .ckpt file of `fit`; raises ValueError as `read_ckpt`."""
        return read_ckpt("ckpt_path", path)


class Best(ModelCheckpoint):
    """Writes best.ckpt after the validation with the highest val_accuracy, with the weights that it measured.

    A resumed run counts the validations before it: it goes on with the best.ckpt that lies beside the .ckpt
    file from which it resumes, wherever that folder is now.
    """

    def __init__(self) -> None:
        options: dict[str, Any] = {"save_on_train_epoch_end": False, "enable_version_counter": False}
        super().__init__(filename="best", monitor="val_accuracy", mode="max", **options)
        self._resumed: Path | None = None

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: Any) -> None:
        self._resumed = Path(trainer.ckpt_path) if trainer.ckpt_path else None

    def state_dict(self) -> dict[str, Any]:
        """The scores, without paths: the folder of a run may be moved."""
        return {name: getattr(self, name) for name in ("best_model_score", "current_score")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with best.ckpt and its score."""
        self.current_score = state_dict["current_score"]
        if self._resumed is None or state_dict["best_model_score"] is None:
            return
        earlier = self._resumed.with_name("best.ckpt")
        try:
            score = read_ckpt("best.ckpt", earlier)["callbacks"][self.state_key]["best_model_score"]
        except ValueError as error:
            log.warning("the best epoch is chosen anew from here on: %s", error)
            return
        path = str(Path(self.dirpath or ".") / "best.ckpt")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, earlier.read_bytes())
        self.best_model_score = self.kth_value = score
        self.best_model_path = self.kth_best_model_path = path
        self.best_k_models = {path: score}


class Last(ModelCheckpoint):
    """Writes last.ckpt at the end of each epoch, and where a run ends inside one."""

    def __init__(self) -> None:
        super().__init__(filename="last", save_on_train_epoch_end=True, enable_version_counter=False)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the folder of a run may be moved."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to load."""
