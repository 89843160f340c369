"""The table of gradients is complete and right."""

import inspect

import pytest

from qat import gradients, losses
from qat.tour import ROWS
from qat.tour.gradient_rows import FORMULAS


def test_every_public_function_has_a_row() -> None:
    public = {
        name
        for room in (gradients, losses)
        for name in room.__all__
        if inspect.isfunction(getattr(room, name))
    }
    assert {name.partition(",")[0] for name in ROWS} == (public | {"recompute", "Quantizer"}) - {
        "check_gradient"
    }


def test_every_row_has_its_formulas() -> None:
    assert FORMULAS.keys() == ROWS.keys()
    assert all(
        isinstance(text, str) for forward, gradient in FORMULAS.values() for text in (forward, gradient)
    )


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_right(name: str) -> None:
    verdict = ROWS[name].check(name)
    assert verdict.ok, str(verdict)
