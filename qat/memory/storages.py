"""Which storages hold values on a grid, and what is kept of a tensor that autograd saves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeGuard
from weakref import ref

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from qat.gradients import ROUNDINGS
from qat.memory.codes import Bools, Codes
from qat.quantizers import Quantizer
from qat.quantizers.keep_grid import keeps_grid
from qat.quantizers.kernels import is_dense

Hook = Callable[[Any], Any]


@contextmanager
def _unseen() -> Iterator[None]:
    """What packing itself does needs no following, and would take twice as long under a function mode."""
    with torch._C.DisableTorchFunction():
        yield


@dataclass(eq=False)
class _Form:
    """How the storage of one tensor is packed, and the packed tensor while somebody keeps it.

    Args:
        codes: what the codes mean.
        size, stride, dtype: of the whole tensor; what is saved may be a view of it.
    """

    codes: Codes | Bools
    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    packed: Callable[[], Tensor | None] = lambda: None


@dataclass(eq=False)
class _Packed:
    """One saved tensor: packed, and the view of the whole that it is."""

    held: Any
    form: _Form
    view: tuple[torch.Size, tuple[int, ...], int]


@dataclass(eq=False)
class _Kept:
    """One saved tensor as it is, and the version in which it was saved."""

    held: Any
    version: int


class Packing(TorchFunctionMode):
    """Which storages hold values on a grid, and what is kept of a saved tensor.

    As a function mode it follows values through max-pooling, copies and zero padding, which keep the grid.
    """

    def __init__(self, outer: "Packing | None" = None) -> None:
        super().__init__()
        self._outer = outer  # knows what a block reads that is no argument of it
        # By storage, with the version then. A weak reference also keeps the storage's address from re-use.
        self._forms: dict[StorageWeakRef, tuple[int, _Form]] = {}
        self._many = 64
        self.closed = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if torch.is_grad_enabled() and keeps_grid(name, args, kwargs):
            source = next(x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
            self._follow(source, output, pads=name == "pad")
        return output

    def learn(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """A hook on the forward of every module: note what quantizers give."""
        # Hooks are the process's: other threads, and what saves nothing, are none of this one's business.
        if current() is not self or not torch.is_grad_enabled():
            return
        if _is_known(module) and module.enabled and args and _is_whole(output):
            # torch never forgets hooks that see arguments by name, so a ReLU is not seen here.
            if module.scale.is_dynamic and not module.training:
                return
            with torch.no_grad(), _unseen():
                scale = module.scale(args[0]).clone()  # the next batch will move it in place
                zero_point = module.scale.zero_point(scale)
            self._make(output, Codes(module.grid, scale, zero_point))

    def _follow(self, source: Tensor, output: Any, pads: bool) -> None:
        form = self.find(source)
        if form is None or not isinstance(form.codes, Codes) or form.codes.scale.numel() > 1:
            return
        if pads and form.codes.grid.step != 1:
            return  # 0 is no code of {-1, +1}
        for x in tree_leaves(output):
            if isinstance(x, Tensor) and x.dtype == source.dtype and self.find(x) is None and _is_whole(x):
                self._make(x, form.codes)

    def _make(self, x: Tensor, codes: Codes | Bools) -> _Form | None:
        if codes.bits >= 8 * x.dtype.itemsize or x.numel() < 8:
            return None  # nothing to be gained
        form = _Form(codes, x.shape, x.stride(), x.dtype)
        self.note(x, form)
        return form

    def note(self, x: Tensor, form: _Form) -> None:
        """Know from now on that the tensor is of this form, unless it changes."""
        if len(self._forms) > self._many:
            self._forms = {key: known for key, known in self._forms.items() if not key.expired()}
            self._many = 2 * len(self._forms) + 64
        self._forms[StorageWeakRef(x.untyped_storage())] = x._version, form

    def find(self, x: Any) -> _Form | None:
        """The form of the storage of a tensor; None: unknown, or no tensor."""
        if not isinstance(x, Tensor):
            return None
        version, form = self._forms.get(StorageWeakRef(x.untyped_storage()), (None, None))
        if form is None:
            return self._outer.find(x) if self._outer else None
        return form if (version, form.dtype) == (x._version, x.dtype) else None

    @torch.no_grad()
    def pack(self, x: Tensor, outer: Hook | None, computed: bool) -> _Packed | _Kept:
        """What is kept of a saved tensor.

        Args:
            x: the tensor.
            outer: what enclosing hooks do with what is kept; None: there are none.
            computed: False: any tensor of its shape may take the place of the packed one.
        """
        form, held = self._held(x, computed)
        held = outer(held) if outer else held
        if form is None:
            return _Kept(held, x._version)
        return _Packed(held, form, (x.shape, x.stride(), int(x.storage_offset())))

    @_unseen()
    def _held(self, x: Tensor, computed: bool) -> tuple[_Form | None, Tensor]:
        """The form of a saved tensor and its packed codes; None and the tensor where it is not packed."""
        form = self.find(x)
        if form is None and x.dtype == torch.bool and _is_whole(x):
            form = self._make(x, Bools())
        if form is None:
            return None, x.detach()  # with its graph it would keep itself alive
        packed = form.packed()
        if packed is None:
            whole = x.as_strided(form.size, form.stride, 0)
            packed = form.codes.encode(whole) if computed else _stand_in(whole, form.codes.bits)
            form.packed = ref(packed)
        return form, packed

    @torch.no_grad()
    def unpack(self, kept: _Packed | _Kept, outer: Hook | None) -> Tensor:
        """The saved tensor again.

        Raises:
            RuntimeError: it was kept as it was, and changed in place since.
        """
        x: Tensor = outer(kept.held) if outer else kept.held
        if isinstance(kept, _Packed):
            form = kept.form
            with _unseen():
                return form.codes.decode(x, form.size, form.stride, form.dtype).as_strided(*kept.view)
        # Under hooks autograd does not look itself. What enclosing hooks keep is theirs to look after.
        if outer is None and x._version != kept.version:
            raise RuntimeError(
                f"a tensor of shape {tuple(x.shape)} that is needed for the backward was changed in place "
                "after the forward that saved it; change a copy, or call backward first"
            )
        return x


CURRENT: ContextVar[Packing | None] = ContextVar("packing", default=None)


def current() -> Packing | None:
    """The packing that is on in this thread."""
    # Contexts of interleaved generators close in any order: the one that is restored may be closed.
    packing = CURRENT.get()
    return None if packing is None or packing.closed else packing


def _is_known(module: nn.Module) -> TypeGuard[Quantizer]:
    """Whether what the module gives is sure to lie on its grid: one of one's own may add what it likes."""
    own = not isinstance(module, Quantizer) or type(module).forward is not Quantizer.forward
    return not own and module.rounding in ROUNDINGS.values()


def _stand_in(x: Tensor, bits: int) -> Tensor:
    """As large as the codes of x in shape and type, but without memory of its own."""
    count, dtype = (x.numel(), torch.int16) if bits == 16 else (-(-x.numel() * bits // 8), torch.uint8)
    return torch.zeros((), dtype=dtype, device=x.device).expand(count)


def _is_whole(x: Tensor) -> bool:
    """Whether the elements fill the storage, each once."""
    return is_dense(x) and not x.storage_offset() and x.untyped_storage().nbytes() == x.numel() * x.itemsize
