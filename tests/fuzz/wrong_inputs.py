"""Seeded wrong inputs: mutations of real command lines and of the files that they read."""

import copy
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

VALUES: list[Any] = [
    *(None, True, -1, 0, 3, 10**20, -0.5, 1e300, float("nan"), float("inf"), "", "x", "é\u2501", "1e3", "~"),
    *([], [[]], ["x"], {}, {"x": 1}, {"class_path": "os.system", "init_args": {"command": "touch evil"}}),
    *("os.system", "no.such", "a" * 5000, "../..", "/dev/null", "\x00", "*", "[", "None", "nan", "null"),
]
TEXTS = [
    "&a [*a]",
    "[" * 2000,
    "a: 1\na: 2",
    "? [x]\n: y",
    "!!python/object/apply:os.system [x]",
    "\t",
    "---\n---",
]
OPTIONS = {
    "train": [
        *("model.name", "model.learning_rate", "model.options.width", "model.loss", "model.checkpoint"),
        *("model.quantization.weight_bits", "model.quantization.rounding", "model.quantization.layers"),
        *("model.float_epochs", "model.freeze_epoch", "model.teacher", "model.start", "model.seed", "config"),
        *(
            "data.name",
            "data.batch_size",
            "data.val_fraction",
            "data.data_root",
            "seed_everything",
            "ckpt_path",
        ),
        *(
            "trainer.max_epochs",
            "trainer.limit_train_batches",
            "trainer.limit_val_batches",
            "trainer.devices",
        ),
        *(
            "trainer.val_check_interval",
            "trainer.gradient_clip_val",
            "trainer.accelerator",
            "trainer.callbacks",
        ),
        *("trainer.default_root_dir", "trainer.precision", "trainer.strategy", "trainer.overfit_batches"),
    ],
    "compare": [
        *(
            "config",
            "setups",
            "seeds",
            "bits",
            "weight_bits",
            "activation_bits",
            "epochs",
            "data",
            "data_root",
        ),
        *("model", "loss", "batch_size", "learning_rate", "out", "jobs"),
    ],
    "export": ["format", "out", "opset", "fold", "sizes", "ckpt", "model", "data", "data_root", "modules"],
    "memory": ["model", "image", "batch", "bits", "scale", "checkpoint", "device", "out"],
    "benchmark": ["out", "threads", "device", "rounds", "bits", "batch"],
    "check_gradients": ["shape", "low", "high", "seed", "surrogate"],
    "tour": ["html"],
}


class Wrong:
    """Draws one wrong command line, with its files, in the current folder.

    `run` is the folder of a finished run: config.yaml, last.ckpt; `images` the folder of its data.
    """

    def __init__(self, seed: int, run: Path, images: Path) -> None:
        self.random, self.run, self.images = random.Random(seed), run, images

    def command(self) -> list[str]:
        """A verb and its arguments."""
        makers: list[Callable[[], list[str]]] = [
            *(
                self._arguments,
                self._config,
                self._config,
                self._comparison,
                self._ckpt,
                self._run,
                self._data,
            )
        ]
        return self.random.choice(makers)()

    def _fit(self, *more: str) -> list[str]:
        return ["train", "fit", "--config", str(self.run / "config.yaml"), *more]

    def _arguments(self) -> list[str]:
        verb = self.random.choice(list(OPTIONS))
        start = {"train": self._fit(), "export": ["export", str(self.run)], "compare": self._compare()}
        argv = start.get(verb, [verb])
        for _ in range(self.random.randint(1, 2)):
            name, value = self.random.choice(OPTIONS[verb]), self.random.choice(VALUES)
            name = self._flipped(name) if self.random.random() < 0.2 else name
            argv += [f"--{name}"] + ([] if self.random.random() < 0.1 else [str(value).replace("\x00", "")])
        return argv

    def _compare(self) -> list[str]:
        data = ["--data", "folder", "--data_root", str(self.images), "--batch_size", "8", "--epochs", "1"]
        return ["compare", "--setups", "ste", "--seeds", "0", *data]

    def _config(self) -> list[str]:
        self._write_yaml("mine.yaml", yaml.safe_load((self.run / "config.yaml").read_text()))
        return ["train", self.random.choice(["fit", "fit", "test"]), "--config", "mine.yaml"]

    def _comparison(self) -> list[str]:
        content = {
            "model": {"learning_rate": 0.01, "options": {"width": 4}, "quantization": {"weight_bits": 4}},
            "data": {"name": "folder", "data_root": str(self.images), "batch_size": 8},
            "trainer": {"max_epochs": 1},
            "setups": {"ste": {"model.quantization.rounding": "ste"}, "zero": {"model.pack": True}},
            "sweep": {"model.learning_rate": [0.1, 0.01]},
            "seeds": [0, 1],
            "equal": [["ste", "zero"]],
        }
        self._write_yaml("mine.yaml", content)
        return ["compare", "--config", "mine.yaml", "--out", "out"]

    def _ckpt(self) -> list[str]:
        file = Path("mine.ckpt")
        content = torch.load(self.run / "last.ckpt", weights_only=True)
        if self.random.random() < 0.5:
            self._mutate(content)
            torch.save(content, file)
        else:
            file.write_bytes(self._damaged((self.run / "last.ckpt").read_bytes()))
        option = self.random.choice(["ckpt_path", "model.teacher", "model.start"])
        if self.random.random() < 0.3:
            return ["export", "mine.ckpt", "--data", "folder", "--data_root", str(self.images)]
        return self._fit(f"--{option}", "mine.ckpt", "--trainer.max_epochs", "9")

    def _run(self) -> list[str]:
        shutil.copytree(self.run, "run (copy)")
        name = self.random.choice(["config.yaml", "last.ckpt"])
        if name == "config.yaml" and self.random.random() < 0.7:
            self._write_yaml(f"run (copy)/{name}", yaml.safe_load((self.run / name).read_text()))
        else:
            file = Path("run (copy)", name)
            file.write_bytes(self._damaged(file.read_bytes()))
        return ["export", "run (copy)"]

    def _data(self) -> list[str]:
        shutil.copytree(self.images, "data", ignore=shutil.ignore_patterns(".qat_cache*"))
        file = self.random.choice(sorted(Path("data").rglob("*.png")))
        what = self.random.randrange(4)
        if what == 0:
            shutil.rmtree(file.parent)
        elif what == 1:
            file.unlink()
            file.mkdir()
        else:
            file.write_bytes(self._damaged(file.read_bytes()))
        return self._fit("--data.data_root", "data")

    def _write_yaml(self, path: str, content: Any) -> None:
        if self.random.random() < 0.7:
            self._mutate(content)
        text = yaml.safe_dump(content, allow_unicode=True).encode()
        if self.random.random() < 0.3:
            text = self._damaged(text)
        if self.random.random() < 0.1:
            text += b"\n" + self.random.choice(TEXTS).encode()
        Path(path).write_bytes(text)

    def _mutate(self, content: Any) -> None:
        """Change one entry somewhere in nested mappings and lists: its value or its key, or drop it."""
        places = [content]
        for place in places:
            children = place.values() if isinstance(place, dict) else place
            places += [child for child in children if isinstance(child, dict | list) and child]
        place = self.random.choice(places)
        key = self.random.choice(list(place) if isinstance(place, dict) else range(len(place)))
        value, kind = copy.deepcopy(self.random.choice(VALUES)), self.random.random()
        if kind < 0.7:
            place[key] = value
        elif kind < 0.85:
            del place[key]
        elif isinstance(place, dict):
            place[self._flipped(str(key))] = place.pop(key)

    def _flipped(self, text: str) -> str:
        at = self.random.randrange(len(text) or 1)
        return text[:at] + self.random.choice(["", "x", "-", ".", "é"]) + text[at + 1 :]

    def _damaged(self, content: bytes) -> bytes:
        changed, kind = bytearray(content), self.random.random()
        if kind < 0.3:
            return content[: self.random.randrange(len(content))]
        for _ in range(1 if kind < 0.7 else 20):
            changed[self.random.randrange(len(changed))] ^= 1 << self.random.randrange(8)
        return bytes(changed)
