"""The list of modes, and which of them must compute the same."""

import pytest

from qat.measure.modes import FLOAT, MEMORY_MODES, MODES, PACKED_CHECKPOINTED, QAT, name_of, reference_of


def test_every_mode_differs_from_the_others() -> None:
    assert [name_of(mode) for mode in MODES.values()] == list(MODES)


def test_the_memory_study_compares_what_saves_differently() -> None:
    assert MEMORY_MODES == (
        "float",
        "float, checkpointed",
        "qat",
        "qat, packed",
        "qat, checkpointed",
        "qat, packed, checkpointed",
    )


@pytest.mark.parametrize(
    ("name", "reference"),
    [(FLOAT, None), (QAT, None), ("float, checkpointed", FLOAT), (PACKED_CHECKPOINTED, QAT)],
)
def test_the_reference_of_a_mode(name: str, reference: str | None) -> None:
    assert reference_of(name) == reference
