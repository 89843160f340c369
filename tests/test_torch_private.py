"""The private names of torch that the package uses; a new release has to be checked here first."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from qat.torch_private import (
    StorageWeakRef,
    empty_buffers,
    function_modes,
    has_forward_hooks,
    innermost_saved_tensors_hooks,
    storage_identity,
    tensors_in,
    tree_flatten,
    tree_unflatten,
    version_of,
    without_torch_function,
)

CHECKED = ("2.14",)


def test_the_release_was_checked() -> None:
    release = ".".join(torch.__version__.split(".")[:2])
    assert release in CHECKED, (
        f"torch {release} was not checked: see whether the names in qat/torch_private.py, and those that "
        "qat/layers/layer.py inherits, have become public; then add the release to CHECKED"
    )


def test_trees() -> None:
    a, b = torch.zeros(1), torch.zeros(2)
    tree = {"a": a, "rest": [(b, 3), None]}
    assert [id(x) for x in tensors_in(tree)] == [id(a), id(b)]
    leaves, structure = tree_flatten(tree)
    again = tree_unflatten(leaves, structure)
    assert again["a"] is a
    assert again["rest"][0][1] == 3


def test_a_version_counts_changes_in_place_through_views_too() -> None:
    x = torch.zeros(2)
    assert version_of(x) == 0
    x.view(2).add_(1)
    assert version_of(x) == 1


def test_buffers_that_are_none() -> None:
    module = nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False), nn.BatchNorm1d(2))
    names = ["running_mean", "running_var", "num_batches_tracked"]
    assert empty_buffers(module) == [f"0.{name}" for name in names]
    assert empty_buffers(module[0]) == names


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_on_a_forward(register: str) -> None:
    module = nn.Identity()
    assert not has_forward_hooks(module)
    getattr(module, register)(lambda *_: None)
    assert has_forward_hooks(module)


def test_a_weak_reference_to_a_storage() -> None:
    x = torch.zeros(2)
    reference = StorageWeakRef(x.untyped_storage())
    assert reference == StorageWeakRef(x.view(2).detach().untyped_storage())
    assert reference != StorageWeakRef(torch.zeros(2).untyped_storage())
    assert {reference: 1}[StorageWeakRef(x.untyped_storage())] == 1
    assert reference.cdata == storage_identity(x) == storage_identity(x[1:].detach())
    assert storage_identity(x.to_sparse()) == 0
    assert not reference.expired()
    del x
    assert reference.expired()


def test_the_innermost_saved_tensors_hooks() -> None:
    assert innermost_saved_tensors_hooks() is None
    outer, inner = (lambda x: x), (lambda x: x)
    with saved_tensors_hooks(outer, outer), saved_tensors_hooks(inner, inner):
        assert innermost_saved_tensors_hooks() == (inner, inner)


def test_modes_do_not_see_what_runs_without_torch_function() -> None:
    seen: list[str] = []

    class Names(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None) -> Tensor:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = torch.zeros(1)
    with Names():
        with without_torch_function():
            torch.exp(x)
        torch.sin(x)
    assert seen == ["sin"]


def test_the_function_modes_of_this_thread() -> None:
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None) -> Tensor:
            return func(*args, **(kwargs or {}))

    assert function_modes() == []
    with Mode() as outer, Mode() as inner:
        assert function_modes() == [outer, inner]


@pytest.mark.parametrize("name", ["_conv_forward", "_output_padding"])
def test_methods_of_convolutions_that_quantized_ones_call(name: str) -> None:
    kind = nn.ConvTranspose2d if name == "_output_padding" else nn.Conv2d
    assert callable(getattr(kind, name))
