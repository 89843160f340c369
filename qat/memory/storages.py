"""Which storages hold values on a grid, and what is kept of a tensor that autograd saves."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeGuard
from weakref import ref

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from qat.gradients import ROUNDINGS
from qat.memory.codec import BoolCodec, GridCodec
from qat.memory.versions import SavedVersion
from qat.quantizers import Quantizer, follows_formula
from qat.quantizers.keep_grid import keeps_grid
from qat.quantizers.kernels import is_dense
from qat.torch_private import StorageWeakRef, tensors_in, version_of, without_torch_function

Hook = Callable[[Any], Any]


@dataclass(eq=False)
class StorageFormat:
    """How the storage of one tensor is packed, and a weak reference to the packed tensor."""

    codec: GridCodec | BoolCodec  # encodes and decodes the values
    size: torch.Size  # of the tensor that fills the storage; a saved tensor may be a view of it
    stride: tuple[int, ...]
    dtype: torch.dtype
    packed: Callable[[], Tensor | None] = lambda: None


@dataclass(eq=False)
class PackedTensor:
    """A saved tensor that is packed, and which view of its storage it is."""

    content: Any
    format: StorageFormat
    view: tuple[torch.Size, tuple[int, ...], int]


@dataclass(eq=False)
class UnpackedTensor:
    """A saved tensor that is kept as it is, and its version at that time."""

    content: Any
    version: SavedVersion


class Packing(TorchFunctionMode):
    """Knows which storages hold values on a grid, and packs the tensors that autograd saves.

    As a function mode it follows values through functions that keep the grid: max-pooling, copies, padding.
    `outer` knows what a checkpointed block reads without getting it as an argument.
    """

    def __init__(self, outer: "Packing | None" = None) -> None:
        super().__init__()
        self._outer = outer
        # Storage -> the version of its tensor, and its format. While a weak reference exists, no other
        # storage gets the same address.
        self._formats: dict[StorageWeakRef, tuple[int, StorageFormat]] = {}
        self._next_cleanup = 64  # entries
        self.closed = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if torch.is_grad_enabled() and keeps_grid(name, args, kwargs):
            self._propagate(tensors_in((args, kwargs))[0], output, pads=name == "pad")
        return output

    def record_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """A forward hook of all modules, which records the outputs of quantizers."""
        # The hook is global: it is also called in other threads, and where nothing is saved.
        if current() is not self or not torch.is_grad_enabled():
            return
        # This hook does not see the argument `relu=True`, because torch would never release a global hook
        # that gets keyword arguments. The argument matters only for a dynamic scale in eval mode.
        if _is_on_grid(module) and module.enabled and args and _fills_storage(output):
            if module.scale.is_dynamic and not module.training:
                return
            with torch.no_grad(), without_torch_function():
                scale = module.scale(args[0]).clone()  # the next batch changes the scale in place
                zero_point = module.scale.zero_point(scale)
            self._record_new(output, GridCodec(module.grid, scale, zero_point))

    def _propagate(self, source: Tensor, output: Any, pads: bool) -> None:
        found = self.find(source)
        if found is None or not isinstance(found.codec, GridCodec) or found.codec.scale.numel() > 1:
            return
        if pads and found.codec.grid.step != 1:
            return  # 0 is no code of {-1, +1}
        for x in tensors_in(output):
            if x.dtype == source.dtype and self.find(x) is None and _fills_storage(x):
                self._record_new(x, found.codec)

    def _record_new(self, x: Tensor, codec: GridCodec | BoolCodec) -> StorageFormat | None:
        if codec.bits >= 8 * x.dtype.itemsize or x.numel() < 8:
            return None  # packing would save nothing
        new = StorageFormat(codec, x.shape, x.stride(), x.dtype)
        self.record(x, new)
        return new

    def record(self, x: Tensor, storage_format: StorageFormat) -> None:
        """Record the format of the tensor's storage; it is valid until the tensor is changed in place."""
        if len(self._formats) > self._next_cleanup:
            self._formats = {key: value for key, value in self._formats.items() if not key.expired()}
            self._next_cleanup = 2 * len(self._formats) + 64
        self._formats[StorageWeakRef(x.untyped_storage())] = version_of(x), storage_format

    def find(self, x: Any) -> StorageFormat | None:
        """The format of the storage of a tensor; None: it is unknown, or x is not a tensor."""
        if not isinstance(x, Tensor):
            return None
        version, found = self._formats.get(StorageWeakRef(x.untyped_storage()), (None, None))
        if found is None:
            return self._outer.find(x) if self._outer else None
        return found if (version, found.dtype) == (version_of(x), x.dtype) else None

    @torch.no_grad()
    def pack(self, x: Tensor, outer: Hook | None, computed: bool) -> PackedTensor | UnpackedTensor:
        """What autograd keeps of a tensor that it saves: its codes, or a placeholder of their shape and type.

        `outer` is the pack hook of the enclosing hooks; None: there are none.
        """
        # This code needs no following, and would take twice as long under a function mode.
        with without_torch_function():
            found = self.find(x)
            if found is None and x.dtype == torch.bool and _fills_storage(x):
                found = self._record_new(x, BoolCodec())
            content = x.detach() if found is None else _encoded(x, found, computed)
        kept = outer(content) if outer else content
        if found is None:
            return UnpackedTensor(kept, SavedVersion(x))
        return PackedTensor(kept, found, (x.shape, x.stride(), int(x.storage_offset())))

    @torch.no_grad()
    def unpack(self, saved: PackedTensor | UnpackedTensor, outer: Hook | None) -> Tensor:
        """The saved tensor; RuntimeError if it was not packed, and was changed in place since."""
        x: Tensor = outer(saved.content) if outer else saved.content
        if isinstance(saved, PackedTensor):
            of = saved.format
            with without_torch_function():
                return of.codec.decode(x, of.size, of.stride, of.dtype).as_strided(*saved.view)
        saved.version.check(x, "change a copy, or call backward first")
        return x


CURRENT: ContextVar[Packing | None] = ContextVar("packing", default=None)


def current() -> Packing | None:
    """The packing that is active in this thread."""
    # Contexts of interleaved generators close in any order, so the one that is restored may be closed.
    packing = CURRENT.get()
    return None if packing is None or packing.closed else packing


def _is_on_grid(module: nn.Module) -> TypeGuard[Quantizer]:
    """Whether the module's output must lie on its grid; a user-defined forward or rounding may leave it."""
    return follows_formula(module) and module.rounding in ROUNDINGS.values()


def _encoded(x: Tensor, storage_format: StorageFormat, computed: bool) -> Tensor:
    """The codes of the storage of x, encoded once as long as they are kept; or a placeholder of them."""
    packed = storage_format.packed()
    if packed is None:
        codec, whole = storage_format.codec, x.as_strided(storage_format.size, storage_format.stride, 0)
        packed = codec.encode(whole) if computed else _placeholder(whole, codec.bits)
        storage_format.packed = ref(packed)
    return packed


def _placeholder(x: Tensor, bits: int) -> Tensor:
    """A tensor with the shape and type of the codes of x, but almost no memory."""
    count, dtype = (x.numel(), torch.int16) if bits == 16 else (-(-x.numel() * bits // 8), torch.uint8)
    return torch.zeros((), dtype=dtype, device=x.device).expand(count)


def _fills_storage(x: Tensor) -> bool:
    """Whether the elements fill the storage, each once."""
    return is_dense(x) and not x.storage_offset() and x.untyped_storage().nbytes() == x.numel() * x.itemsize
