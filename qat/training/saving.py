"""The .ckpt files that a run keeps: the best epoch and the last one."""

import shutil
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint

EACH_EPOCH: dict[str, Any] = {"save_on_train_epoch_end": True, "enable_version_counter": False}


class Best(ModelCheckpoint):
    """Writes best.ckpt, the epoch with the highest val_accuracy, counting the epochs before a resume."""

    def __init__(self) -> None:
        super().__init__(filename="best", monitor="val_accuracy", mode="max", **EACH_EPOCH)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # Lightning forgets the best score where the folder changes, and here each run has a new folder.
        earlier = Path(state_dict["best_model_path"])
        if self.dirpath is not None and state_dict["dirpath"] != self.dirpath and earlier.is_file():
            copy = Path(self.dirpath) / "best.ckpt"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(earlier, copy)
            paths = {"best_model_path": str(copy), "kth_best_model_path": str(copy), "dirpath": self.dirpath}
            best = {"best_k_models": {str(copy): state_dict["best_model_score"]}}
            state_dict = state_dict | paths | best
        super().load_state_dict(state_dict)


class Last(ModelCheckpoint):
    """Writes last.ckpt at the end of each epoch. (Lightning's `save_last=True` skips some epochs.)"""

    def __init__(self) -> None:
        super().__init__(filename="last", **EACH_EPOCH)
