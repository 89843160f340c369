"""A finished run, found by its folder or by its .ckpt file: its network and its data."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qat.data import ImageData, data_shape
from qat.training.ckpt import OF_TRAINING, build_from, load_state, read_ckpt
from qat.training.classifier import Classifier
from qat.training.named_parts import check_named_parts
from qat.yaml_file import read_yaml

# The last .ckpt file of `train`, of `compare`, and of any other folder.
LAST_CKPTS = ("checkpoints/last.ckpt", "final.ckpt", "last.ckpt")


@dataclass(frozen=True)
class TrainedRun:
    """A run and its data."""

    classifier: Classifier  # in eval mode, with the weights of the .ckpt file
    ckpt: Path
    data: str  # name of the data set
    data_root: str | None  # None: the default folder

    def test_set(self) -> tuple[Tensor, Tensor]:
        """All test images `(N, C, H, W)` in [0, 1], and their labels `(N,)`."""
        data = ImageData(self.data, self.data_root)  # type: ignore[arg-type] # it checks the name
        self.classifier.name_classes(data.class_names, "the data")
        data.prepare_data()
        data.setup("test")
        batches = list(data.test_dataloader())
        return torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches])


def load_run(
    run: str, ckpt_path: str | None = None, data: str | None = None, data_root: str | None = None
) -> TrainedRun:
    """Load a run from its folder, written by `train` or `compare`, or from a .ckpt file.

    By default the .ckpt file is the last one of the folder, and the data set and its folder are the run's.
    Raises ValueError if there is no such run, or if the .ckpt file belongs to another configuration.
    """
    path = Path(run)
    folder = path if path.is_dir() else path.parent
    if not path.is_dir() and folder.name == "checkpoints":
        folder = folder.parent
    ckpt = Path(ckpt_path) if ckpt_path else _last_ckpt(path) if path.is_dir() else path
    argument = "ckpt_path" if ckpt_path else "run"  # whichever names the file
    content = read_ckpt(argument, ckpt)
    settings, known = _configuration(folder)
    data = data or known.get("name")
    if data is None:
        raise ValueError(f"data must be named with --data, for {folder} holds no config.yaml or result.json")
    data_root = data_root or known.get("data_root")
    if settings is None:
        check_named_parts(content, ckpt, OF_TRAINING)
        settings = content["hyper_parameters"]
    else:
        shape, classes = data_shape(data, data_root)  # type: ignore[arg-type]
        settings = settings | {"input_shape": list(shape), "classes": classes}
    # A finished network computes the same without checkpointing.
    settings = settings | OF_TRAINING | {"checkpoint": []}
    classifier = build_from(content, f"{argument} {ckpt}", Classifier, settings)
    load_state(content, ckpt, classifier, argument)
    return TrainedRun(classifier.eval(), ckpt, data, data_root)


def _last_ckpt(folder: Path) -> Path:
    found = [folder / name for name in LAST_CKPTS if (folder / name).is_file()]
    if not found:
        raise ValueError(
            f"run must be a .ckpt file or a folder that holds one of {', '.join(LAST_CKPTS)}; got {folder}"
        )
    return found[0]


def _configuration(folder: Path) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The model's part of config.yaml (None if there is no such file), and what is known of the data."""
    config, result = folder / "config.yaml", folder / "result.json"
    if config.is_file():
        content = read_yaml("run", config)
        for group in ("model", "data"):
            if not isinstance(content, dict) or not isinstance(content.get(group), dict):
                raise ValueError(f"run must hold a config.yaml of train, but {config} has no group {group}")
        return content["model"], content["data"]
    if result.is_file():
        try:
            return None, dict(json.loads(result.read_text(encoding="utf-8"))["settings"]["data"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ValueError(f"run must hold a result.json of compare, but {result} is not one") from error
    return None, {}
