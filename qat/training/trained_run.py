"""A finished run, found by its folder or by its .ckpt file: its network and its data."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qat.data import ImageData, data_shape
from qat.names import is_import_path
from qat.training.ckpt import OF_TRAINING, build_from, load_state, read_ckpt
from qat.training.classifier import Classifier
from qat.training.foreign import load_network, user_images
from qat.training.named_parts import check_named_parts
from qat.training.resuming import finished_epochs
from qat.yaml_file import read_yaml

# By `--ckpt`: the .ckpt files of `train`, of `compare`, and of any other folder.
CKPTS = {
    "best": ("checkpoints/best.ckpt", "best.ckpt"),
    "last": ("checkpoints/last.ckpt", "final.ckpt", "last.ckpt"),
}


@dataclass(frozen=True)
class TrainedRun:
    """A trained network and its data."""

    network: nn.Module  # in eval mode, with the weights of the .ckpt file
    classifier: Classifier | None  # that it belongs to; None: it was built by a user-defined function
    ckpt: Path
    data: str  # name of the data set
    data_root: str | None  # None: the default folder
    class_names: tuple[str, ...] | None
    note: str  # which weights they are

    def test_set(self) -> tuple[Tensor, Tensor]:
        """All test images `(N, C, H, W)` in [0, 1], and their labels `(N,)`.

        Raises ValueError if the data has other classes than the run.
        """
        if is_import_path(self.data):
            return user_images(self.data)
        data = ImageData(self.data, self.data_root)  # type: ignore[arg-type] # it checks the name
        if self.classifier:
            self.classifier.name_classes(data.class_names, "the data")
        data.prepare_data()
        data.setup("test")
        batches = list(data.test_dataloader())
        return torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches])


def load_run(
    run: str,
    ckpt: str | None = None,
    data: str | None = None,
    data_root: str | None = None,
    model: str | None = None,
) -> TrainedRun:
    """Load a run from its folder, written by `train` or `compare`, or from a .ckpt file.

    Args:
        run: the folder or the file.
        ckpt: `best`, `last` or a file; by default the best of the folder, or the last where there is no best.
        data: the name of the data set; by default that of the run. Or the import path of a function without
            arguments that returns test images (N, C, H, W) and labels (N,).
        data_root: its folder; by default that of the run.
        model: the import path of a function that returns the quantized network, for a .ckpt file of another
            LightningModule.

    Raises:
        ValueError: there is no such run, or the .ckpt file belongs to another configuration or network.
    """
    path = Path(run)
    folder = path if path.is_dir() else path.parent
    if not path.is_dir() and folder.name == "checkpoints":
        folder = folder.parent
    file, other = _ckpt_file(path, ckpt)
    argument = "run" if file == path or ckpt in (None, *CKPTS) else "ckpt"  # whichever names the file
    content = read_ckpt(argument, file) if model is None else {}
    settings, known = _configuration(folder)
    data = data or known.get("name")
    if data is None:
        raise ValueError(f"data must be named with --data, for {folder} holds no config.yaml or result.json")
    data_root = data_root or known.get("data_root")
    if model is not None:
        network, epochs = load_network(model, argument, file)
        known_data = not is_import_path(data)
        names = ImageData(data, data_root).class_names if known_data else None  # type: ignore[arg-type]
        return TrainedRun(network, None, file, data, data_root, names, f"weights of {file}{epochs}")
    if settings is None:
        check_named_parts(content, file, OF_TRAINING)
        settings = content["hyper_parameters"]
    else:
        shape, classes = data_shape(data, data_root)  # type: ignore[arg-type]
        settings = settings | {"input_shape": list(shape), "classes": classes}
    # A finished network computes the same without checkpointing.
    settings = settings | OF_TRAINING | {"checkpoint": []}
    classifier = build_from(content, f"{argument} {file}", Classifier, settings)
    load_state(content, file, classifier, argument)
    note = f"weights of {file}, after {finished_epochs(content)} epochs{_score(content, file)}{other}"
    network = classifier.eval().model
    return TrainedRun(network, classifier, file, data, data_root, classifier.class_names, note)


def _score(content: dict[str, Any], file: Path) -> str:
    """The validation accuracy of a best.ckpt, in words; other files hold that of earlier weights."""
    scores = [
        state["best_model_score"] for key, state in content.get("callbacks", {}).items() if key[:4] == "Best"
    ]
    if file.name != "best.ckpt" or len(scores) != 1 or scores[0] is None:
        return ""
    return f", with a validation accuracy of {100 * float(scores[0]):.2f} %"


def _ckpt_file(run: Path, ckpt: str | None) -> tuple[Path, str]:
    """The .ckpt file that is meant, and in words which other one the folder has."""
    if ckpt is not None and ckpt not in CKPTS:
        return Path(ckpt), ""
    if not run.is_dir():
        if ckpt is not None:
            raise ValueError(f"ckpt must be left out where run is a file, got {ckpt} and {run}")
        return run, ""
    found = {kind: next((n for n in CKPTS[kind] if (run / n).is_file()), "") for kind in CKPTS}
    names = {kind: name for kind, name in found.items() if name}
    chosen = ckpt or ("best" if "best" in names else "last")
    if chosen not in names:
        rule = f"run must be a .ckpt file or a folder that holds one of {', '.join(CKPTS[chosen])}"
        there = "".join(f"; --ckpt {kind} takes {name}" for kind, name in names.items())
        raise ValueError(f"{rule}; got {run}{there}")
    left = {kind: name for kind, name in names.items() if kind != chosen}
    words = "".join(f" (--ckpt {kind} takes {name})" for kind, name in left.items())
    return run / names[chosen], words


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
