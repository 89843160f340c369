"""Swept options have short names, texts and places on an axis."""

import math

import pytest

from qat.report.option import Option

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
RATE = "model.learning_rate"


@pytest.mark.parametrize(
    ("key", "values", "name", "texts", "places", "log"),
    [
        (BITS, [8, 4, [3, 2]], "bits", ["8", "4", "w3a2"], [8, 4, math.sqrt(6)], True),
        (RATE, [0.1, 0.001], "learning_rate", ["0.1", "0.001"], [0.1, 0.001], True),
        (RATE, [0.1, 0.01], "learning_rate", ["0.1", "0.01"], [0.1, 0.01], False),
        ("model.weight_decay", [0, 1e-4, 0.1], "weight_decay", ["0", "0.0001", "0.1"], [0, 1e-4, 0.1], True),
        ("model.optimizer", ["sgd", None], "optimizer", ["sgd", "none"], [0, 1], False),
        ("model.pack", [True, False], "pack", ["true", "false"], [0, 1], False),
        ("a.b, a.c", [[1, 2], [3, 4]], "b/c", ["1/2", "3/4"], [0, 1], False),
    ],
)
def test_an_option_has_a_name_texts_and_places(key, values, name, texts, places, log):
    option = Option(key, values)
    assert option.name == name
    assert [option.text(value) for value in values] == texts
    assert [option.place(value) for value in values] == places
    assert option.is_logarithmic == log
