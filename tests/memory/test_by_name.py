"""Blocks checkpointed by their names: what is refused."""

import pytest
import torch

from qat import Checkpointed, Quantization, checkpoint_blocks, quantize
from qat.models import ResNet8, SmallCNN


@pytest.mark.parametrize("patterns", ["blocks.*", [3], [None]])
def test_patterns_that_are_no_list_of_globs(patterns: list[str]) -> None:
    with pytest.raises(ValueError, match=r"must be a list of globs like \['blocks.\*'\]; got "):
        checkpoint_blocks(SmallCNN(), patterns)


def test_a_pattern_that_matches_nothing() -> None:
    with pytest.raises(ValueError, match=r"checkpoint pattern 'block.\*' matches nothing; nearest: blocks"):
        checkpoint_blocks(SmallCNN(), ["block.*"])


@pytest.mark.parametrize("patterns", [["blocks.0", "blocks.0.conv"], ["blocks.0.conv", "blocks.0"]])
def test_a_block_inside_a_block(patterns: list[str]) -> None:
    with pytest.raises(ValueError, match=r"'blocks\.0\.conv' would be checkpointed inside block 'blocks\.0'"):
        checkpoint_blocks(SmallCNN(), patterns)
    model = checkpoint_blocks(SmallCNN(), patterns[:1])
    with pytest.raises(
        ValueError, match=r"block 'blocks\.0.*' would be checkpointed inside block 'blocks\.0"
    ):
        checkpoint_blocks(model, patterns[1:])


def test_twice_the_same_block() -> None:
    model = checkpoint_blocks(SmallCNN(), ["blocks.*"])
    with pytest.raises(ValueError, match=r"block 'blocks\.0' is checkpointed already"):
        checkpoint_blocks(model, ["blocks.0"])
    with pytest.raises(ValueError, match="the block is checkpointed already"):
        Checkpointed(model.blocks[0])


def test_quantizing_comes_before_checkpointing() -> None:
    model = checkpoint_blocks(ResNet8(), ["blocks.*"])
    with pytest.raises(
        ValueError, match=r"blocks\.0 is checkpointed; call quantize before checkpoint_blocks"
    ):
        quantize(model, Quantization(), torch.zeros(2, 3, 32, 32))
