"""Swept options have short names, texts and places on an axis."""

import pytest

from qat.report.option import SweptOption

BITS = "model.quantization.weight_bits, model.quantization.activation_bits"
RATE = "model.learning_rate"


@pytest.mark.parametrize(
    ("key", "values", "name", "texts", "places"),
    [
        (BITS, [8, 4, 2], "bits", ["8", "4", "2"], [8, 4, 2]),
        (BITS, [8, 4, [3, 2]], "bits", ["8", "4", "w3a2"], [0, 1, 2]),
        (RATE, [0.1, 0.001], "learning_rate", ["0.1", "0.001"], [0.1, 0.001]),
        ("model.optimizer", ["sgd", None], "optimizer", ["sgd", "none"], [0, 1]),
        ("model.pack", [True, False], "pack", ["true", "false"], [0, 1]),
        ("a.b, a.c", [[1, 2], [3, 4]], "b/c", ["1/2", "3/4"], [0, 1]),
    ],
)
def test_an_option_has_a_name_texts_and_places(key, values, name, texts, places):
    option = SweptOption(key, values)
    assert option.name == name
    assert option.is_bits == (name == "bits")
    assert [option.text(value) for value in values] == texts
    assert option.places == places


def test_one_of_the_widths_is_bits_too():
    assert SweptOption("model.quantization.weight_bits", [4]).is_bits
