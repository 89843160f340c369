"""Comparisons that take seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qat.experiment import Comparison, parse_comparison

QUANTIZATION = "model.quantization."
SETUPS = {
    "zero": {f"{QUANTIZATION}rounding": "zero"},
    "ste": {f"{QUANTIZATION}rounding": "ste"},
    "float": {
        "model": {
            "quantization": {
                "weight_bits": 32,
                "activation_bits": 32,
                "first_last_bits": 32,
                "input_bits": 32,
            }
        }
    },
    "checkpointed": {f"{QUANTIZATION}rounding": "ste", "model.checkpoint": ["blocks.*"]},
}

Make = Callable[..., Comparison]


@pytest.fixture
def tiny(images: Path) -> Make:
    """A function that makes a comparison of the named setups, of one epoch on tiny images."""

    def make(*names: str, **content: Any) -> Comparison:
        setups = {name: SETUPS[name] for name in names} | content.pop("setups", {})
        trainer = {"max_epochs": 1} | content.pop("trainer", {})
        data = {"name": "folder", "data_root": str(images), "batch_size": 8}
        return parse_comparison({"setups": setups, "data": data, "trainer": trainer, **content})

    return make
