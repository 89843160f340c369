"""The chapters of the tour: each experiment in `experiments.yaml` with the function that measures it."""

from importlib import import_module
from pathlib import Path

import yaml

from qat.tour.experiment import Chapter, Experiment


def load_chapters() -> list[Chapter]:
    """The chapters in order."""
    shown = yaml.safe_load((Path(__file__).parent / "experiments.yaml").read_text(encoding="utf-8"))
    chapters = []
    for name, chapter in shown.items():
        functions = vars(import_module(f"{__name__}.{name}"))
        experiments = [Experiment(functions[key], **one) for key, one in chapter["experiments"].items()]
        chapters.append(Chapter(chapter["title"], experiments))
    return chapters
