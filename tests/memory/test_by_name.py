"""Blocks checkpointed by their names: what is refused."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qat import Checkpointed, Quantization, checkpoint_blocks, quantize
from qat.models import ResNet8, SmallCNN
from qat.torch_private import has_forward_hooks


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


class Iterates(nn.Module):
    """Reads its blocks in one of several ways."""

    def __init__(self, container: type[nn.Module], how: str = "iter") -> None:
        super().__init__()
        parts = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)]
        if container is nn.ModuleDict:
            self.blocks = nn.ModuleDict({f"b{i}": part for i, part in enumerate(parts)})
        else:
            self.blocks = nn.Sequential(*parts) if container is nn.Sequential else container(parts)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "call":
            penalty = sum(block[0].weight.square().sum() for block in self.blocks)  # reads, but does not call
            return self.blocks(x) + 0 * penalty
        if self.how == "slice":
            return self.blocks[1:](self.blocks[:1](x))
        blocks = {
            "iter": lambda: iter(self.blocks.values() if hasattr(self.blocks, "values") else self.blocks),
            "index": lambda: (self.blocks[i] for i in range(3)),
            "children": lambda: self.blocks.children(),
        }[self.how]()
        for block in blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("container", [nn.ModuleList, nn.ModuleDict])
def test_a_container_that_is_never_called(container: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match=r"'blocks' has no effect: a Module\w+ is .* use \['blocks\.\*'\]"):
        checkpoint_blocks(Iterates(container), ["blocks"])
    with pytest.raises(ValueError, match=r"a Module\w+ is never called itself; checkpoint its parts"):
        Checkpointed(Iterates(container).blocks)
    model = checkpoint_blocks(Iterates(container), ["blocks*"])  # the outermost that is called
    assert [name for name, m in model.named_modules() if isinstance(m, Checkpointed)] == [
        f"blocks.{name}" for name in dict(model.blocks.named_children())
    ]


@pytest.mark.parametrize("how", ["iter", "index", "children"])
@pytest.mark.parametrize("copied", [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_sequential_whose_parts_are_called_by_its_parent(copied: Callable[..., Any], how: str) -> None:
    model = copied(checkpoint_blocks(Iterates(nn.Sequential, how), ["blocks"]))
    x = torch.rand(2, 4)
    model.eval()(x)  # not checkpointed in any case
    with torch.no_grad():
        model.train()(x)
    for _ in range(2):
        with pytest.raises(ValueError, match=UNUSED):
            nn.Sequential(nn.Identity(), model)(x)


UNUSED = (
    r"^checkpoint pattern 'blocks' has no effect, because the forward calls the parts of blocks and not "
    r"blocks itself; use 'blocks\.\*'$"
)


def test_one_of_two_patterns_whose_blocks_are_not_called() -> None:
    inner = Iterates(nn.Sequential)
    model = nn.ModuleDict({"head": nn.Linear(4, 4), "inner": inner})
    model.forward = lambda x: inner(model["head"](x))
    checkpoint_blocks(model, ["head", "inner.blocks"])
    with pytest.raises(
        ValueError, match=r"pattern 'inner\.blocks' has no effect, .* use 'inner\.blocks\.\*'"
    ):
        model(torch.rand(2, 4))
    model = checkpoint_blocks(Sometimes(), ["first"])
    with pytest.raises(ValueError, match="pattern 'first' has no effect, because the forward does not call"):
        model(torch.rand(2, 4), skipped=0)


class Sometimes(nn.Module):
    """Leaves out one of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, skipped: int) -> Tensor:
        return self.second(x) if skipped == 0 else self.first(x)


@pytest.mark.parametrize("copied", [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_block_that_does_not_run_beside_others_of_its_pattern(copied: Callable[..., Any]) -> None:
    plain = Sometimes()
    model = copied(checkpoint_blocks(copy.deepcopy(plain), ["*"]))
    for skipped in (0, 1):
        model(torch.rand(2, 4), skipped)
        assert not has_forward_hooks(model)
        assert [vars(part).keys() for part in model.children()] == [
            vars(part).keys() for part in plain.children()
        ]


def test_a_block_in_eval_mode_counts_as_called() -> None:
    model = checkpoint_blocks(Iterates(nn.Sequential, "call"), ["blocks"])
    model.blocks.eval()
    model(torch.rand(2, 4))
    assert not has_forward_hooks(model)


def test_a_compiled_model_is_not_checked() -> None:
    model = checkpoint_blocks(Iterates(nn.Sequential, "call"), ["blocks"])
    x = torch.rand(2, 4)
    expected = copy.deepcopy(model)(x)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        y = compiled(x)
        y.sum().backward()
        torch.testing.assert_close(y, expected)
    model(x)
    assert not has_forward_hooks(model)
    torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize("how", ["call", "slice"])
def test_a_sequential_that_is_called_or_sliced(how: str) -> None:
    model = checkpoint_blocks(Iterates(nn.Sequential, how), ["blocks"])
    x = torch.rand(2, 4, requires_grad=True)
    for _ in range(2):
        model(x).sum().backward()
        model = copy.deepcopy(model)
    outside = [block(x) for block in model.blocks]  # no forward runs
    assert len(outside) == 3
    pickle.loads(pickle.dumps(model))(x).sum().backward()


def test_parts_of_a_checkpointed_sequential() -> None:
    features = Checkpointed(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)))
    x = torch.rand(2, 4, requires_grad=True)
    for front in (features[:2], copy.deepcopy(features)[:2], pickle.loads(pickle.dumps(features))[:2]):
        assert isinstance(front, Checkpointed)
        assert isinstance(front, nn.Sequential)
        assert list(front.state_dict()) == ["0.weight", "0.bias"]
        front(x).sum().backward()
    assert features[0] is next(iter(features))
    assert features[-1] is features[2]
    joined = features[:2] + features[2:]
    assert type(joined) is nn.Sequential
    assert torch.equal(joined(x), features(x))
    assert len(features * 2) == 6
    del features[1]
    assert features.append(nn.ReLU())(x).shape == (2, 2)


class Chain(nn.ModuleList):
    def forward(self, x: Tensor) -> Tensor:
        for block in self:
            x = block(x)
        return x


def test_a_slice_of_a_list_that_has_a_forward() -> None:
    chain = Checkpointed(Chain([nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)]))
    assert type(chain[:2]) is type(chain)
    assert chain[:2](torch.rand(2, 4)).shape == (2, 4)
    assert len(chain + nn.ModuleList([nn.Tanh()])) == 4


def test_an_unknown_keyword() -> None:
    with pytest.raises(TypeError, match="module"):
        Checkpointed(module=nn.Linear(2, 2))  # type: ignore[call-arg]
