"""What a comparison runs: settings, setups and seeds, checked before anything starts."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from qat.data import DataName, data_shape, find_source, resolve_root
from qat.experiment.setups import SETUPS, Setup
from qat.layers import Quantization
from qat.models import MODELS, ModelName
from qat.names import unknown_name
from qat.training.classifier import Classifier
from qat.training.loss import LOSSES, LossName
from qat.training.result import versions


@dataclass(frozen=True)
class Settings:
    """What all runs of a comparison share.

    Args:
        data: a name of `qat.data`.
        data_root: where the data lies; None: the environment variable QAT_DATA, else `data`.
        model: a name of `qat.models`.
        quantization: bits, where a run names none; each setup brings its own rounding.
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
            pack=setup.packed,
            learning_rate=self.learning_rate,
            seed=seed,
        )

    def at(self, bits: int | None) -> "Settings":
        """The same with `bits` for weights and activations; None: these settings."""
        if bits is None:
            return self
        return replace(self, quantization=replace(self.quantization, weight_bits=bits, activation_bits=bits))

    def of(self, setup: Setup) -> dict[str, Any]:
        """The settings of one run as plain values, as they stand in its `result.json`."""
        plain = asdict(self) | {
            "quantization": asdict(setup.quantization(self.quantization)),
            "checkpoint": ["blocks.*"] if setup.checkpointed else [],
            "pack": setup.packed,
        }
        # Where known data lies does not change a run; a folder of images is known by its place alone.
        del plain["data_root"]
        if self.data == "folder":
            plain["folder"] = str(resolve_root(self.data_root).resolve())
        return plain


@dataclass(frozen=True)
class Run:
    """One training: a setup and a seed, and the folder of its `result.json`.

    Args:
        setup: a name of `SETUPS`.
        seed: 0 to 2^32 - 1.
        out: the folder of the comparison.
        bits: of weights and activations in a comparison of several widths; None: those of the settings.
    """

    setup: str
    seed: int
    out: Path
    bits: int | None = None

    @property
    def folder(self) -> Path:
        width = "" if self.bits is None else f"-w{self.bits}a{self.bits}"
        return self.out / f"{self.setup}{width}-seed{self.seed}"

    @classmethod
    def of(cls, folder: Path) -> "Run | None":
        """The run whose folder this is, by its name; None where no run has that name."""
        parts = re.fullmatch(r"(.+?)(?:-w(\d+)a\2)?-seed(\d+)", folder.name)
        if parts is None or parts[1] not in SETUPS:
            return None
        return cls(parts[1], int(parts[3]), folder.parent, int(parts[2]) if parts[2] else None)

    def __str__(self) -> str:
        bits = "" if self.bits is None else f", {self.bits} bit{'s' if self.bits > 1 else ''}"
        return f"{self.setup}{bits}, seed {self.seed}"

    def identity(self, settings: Settings) -> dict[str, Any]:
        """What decides the outcome: a finished run with the same is not repeated."""
        known = {"setup": self.setup, "settings": settings.at(self.bits).of(SETUPS[self.setup])}
        return known | {"seed": self.seed, "versions": versions()}


def plan(setups: Sequence[str], seeds: Sequence[int], out: Path, bits: Sequence[int] = ()) -> list[Run]:
    """The runs in their order: seed by seed, so that an early stop leaves whole comparisons.

    Args:
        setups: names of `SETUPS`.
        seeds: 0 to 2^32 - 1 each.
        out: the folder of the comparison.
        bits: the widths, where there are several: each setup is run at each of them, but for float, which is
            run once. One or none: the settings have it.

    Raises:
        ValueError: an unknown setup, a seed out of range, one of them or a width twice, or no setup or seed.
    """
    for setup in setups:
        if setup not in SETUPS:
            raise unknown_name("setup", setup, SETUPS)
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise ValueError(f"seeds must be 0 to 2^32 - 1; got {seed}")
    for name, values in (("setups", setups), ("seeds", seeds), ("bits", bits)):
        if not values and name != "bits":
            raise ValueError(f"{name} must name at least one")
        twice = [value for value in values if list(values).count(value) > 1]
        if twice:
            raise ValueError(f"{name} must differ; got {twice[0]!r} twice")
    widths: list[int | None] = list(bits) if len(bits) > 1 else [None]
    runs = [
        Run(setup, seed, out, width if SETUPS[setup].has_bits else None)
        for seed in seeds
        for width in widths
        for setup in setups
    ]
    return list(dict.fromkeys(runs))  # float is there once for each width
