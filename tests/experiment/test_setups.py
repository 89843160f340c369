"""What each setup makes of the configuration that all of them share."""

import pytest

from qat.experiment import SETUPS, USUAL
from qat.experiment.setups import TWINS
from qat.gradients import ROUNDINGS
from qat.layers import Quantization

SHARED = Quantization(weight_bits=3, activation_bits=2, per_channel=False, weight_observer="mse")


def test_every_rounding_is_a_setup_by_its_name() -> None:
    for name in ROUNDINGS:
        assert (SETUPS[name].rounding, SETUPS[name].checkpointed, SETUPS[name].learned) == (
            name,
            False,
            False,
        )
    assert SETUPS.keys() - ROUNDINGS.keys() == {
        "float",
        "learned",
        "checkpointed",
        "packed",
        "packed_checkpointed",
    }


@pytest.mark.parametrize("name", SETUPS)
def test_bits_are_the_shared_ones_but_for_float(name: str) -> None:
    config = SETUPS[name].quantization(SHARED)
    bits = (32, 32) if name == "float" else (3, 2)
    assert (config.weight_bits, config.activation_bits) == bits
    assert SETUPS[name].has_bits == (name != "float")


def test_scales_are_learned_under_learned_alone() -> None:
    config = SETUPS["learned"].quantization(SHARED)
    assert (config.weight_scale, config.activation_scale, config.rounding) == ("learned", "learned", "ste")
    assert config.per_channel is False
    assert SETUPS["ste"].quantization(SHARED) == SHARED


def test_twins_differ_in_what_they_do_about_memory_alone() -> None:
    for one, other in TWINS.items():
        assert SETUPS[one].quantization(SHARED) == SETUPS[other].quantization(SHARED)
        assert "ste" in (one, other)
        memory = [(SETUPS[name].checkpointed, SETUPS[name].packed) for name in (one, other)]
        assert memory[0] != memory[1]
    assert (SETUPS["ste"].checkpointed, SETUPS["ste"].packed) == (False, False)


def test_the_usual_ones_are_four() -> None:
    assert USUAL == ("zero", "ste", "float", "checkpointed")
