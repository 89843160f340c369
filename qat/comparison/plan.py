"""What a comparison runs: settings, setups and seeds, checked before anything starts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qat.comparison.setups import SETUPS, Setup
from qat.data import DataName, data_shape, find_source, resolve_root
from qat.layers import Quantization
from qat.models import MODELS, ModelName
from qat.names import unknown_name
from qat.training.classifier import Classifier
from qat.training.objective import LOSSES, LossName
from qat.training.result import versions


@dataclass(frozen=True)
class Settings:
    """What all runs of a comparison share.

    Args:
        data: a name of `qat.data`.
        data_root: where the data lies; None: the environment variable QAT_DATA, else `data`.
        model: a name of `qat.models`.
        quantization: bits; each setup brings its own rounding.
        loss: `huber` on one-hot targets, or `cross_entropy`.
        epochs: >= 1.
        batch_size: images a step.
        learning_rate: peak of the one-cycle schedule.

    Raises:
        ValueError: a name is unknown, or epochs or batch_size are out of range; the rest is checked where a
            classifier is built.
    """

    data: DataName = "mnist5k"
    data_root: str | None = None
    model: ModelName = "small_cnn"
    quantization: Quantization = field(default_factory=Quantization)
    loss: LossName = "huber"
    epochs: int = 6
    batch_size: int = 64
    learning_rate: float = 0.01

    def __post_init__(self) -> None:
        find_source(self.data)
        if self.model not in MODELS:
            raise unknown_name("model", self.model, MODELS)
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")

    def classifier(self, setup: Setup, seed: int) -> Classifier:
        """The untrained classifier of one run; its weights come from the global random generator."""
        shape, classes = data_shape(self.data, self.data_root)
        return Classifier(
            name=self.model,
            input_shape=shape,
            classes=classes,
            loss=self.loss,
            quantization=setup.quantization(self.quantization),
            checkpoint=["blocks.*"] if setup.checkpointed else [],
            learning_rate=self.learning_rate,
            seed=seed,
        )

    def of(self, setup: Setup) -> dict[str, Any]:
        """The settings of one run as plain values, as they stand in its `result.json`."""
        plain = asdict(self) | {
            "quantization": asdict(setup.quantization(self.quantization)),
            "checkpoint": ["blocks.*"] if setup.checkpointed else [],
        }
        # Where known data lies does not change a run; a folder of images is known by its place alone.
        del plain["data_root"]
        if self.data == "folder":
            plain["folder"] = str(resolve_root(self.data_root).resolve())
        return plain


@dataclass(frozen=True)
class Run:
    """One training: a setup and a seed, and the folder of its `result.json`."""

    setup: str
    seed: int
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / f"{self.setup}-seed{self.seed}"

    def identity(self, settings: Settings) -> dict[str, Any]:
        """What decides the outcome: a finished run with the same is not repeated."""
        known = {"setup": self.setup, "settings": settings.of(SETUPS[self.setup])}
        return known | {"seed": self.seed, "versions": versions()}


def plan(setups: Sequence[str], seeds: Sequence[int], out: Path) -> list[Run]:
    """The runs in their order: seed by seed, so that an early stop leaves whole comparisons.

    Raises:
        ValueError: an unknown setup, a seed out of range, one of them twice, or none.
    """
    for setup in setups:
        if setup not in SETUPS:
            raise unknown_name("setup", setup, SETUPS)
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise ValueError(f"seeds must be 0 to 2^32 - 1; got {seed}")
    for name, values in (("setups", setups), ("seeds", seeds)):
        if not values:
            raise ValueError(f"{name} must name at least one")
        twice = [value for value in values if list(values).count(value) > 1]
        if twice:
            raise ValueError(f"{name} must differ; got {twice[0]!r} twice")
    return [Run(setup, seed, out) for seed in seeds for setup in setups]
