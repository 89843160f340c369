"""Modules that get another class at run time: the object stays, and so do its names, keys and hooks."""

from functools import cache
from typing import Any, ClassVar

from torch import nn


class SwappedClass(nn.Module):
    """Abstract base class of a mixin that `swap_class` puts before the class of a module.

    Copies and pickles of the module create its class again, because it cannot be imported by name.
    """

    plain: ClassVar[type[nn.Module]]  # the class that the module had before

    @classmethod
    def members(cls, plain: type[nn.Module]) -> dict[str, Any]:
        """Further members of the class that is made for modules of the class `plain`."""
        return {}

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        mixins: list[type[SwappedClass]] = []
        kind: Any = type(self)
        while "plain" in vars(kind):
            mixins.append(kind.__bases__[0])
            kind = kind.plain
        return _blank, (tuple(mixins), kind), self.__getstate__()


def swap_class(module: nn.Module, mixin: Any) -> None:
    """Let the module's class derive from `mixin`, a `SwappedClass`, and from the class that it has now."""
    kind: Any = type(module)
    module.__class__ = _swapped(mixin, kind)


@cache
def _swapped(mixin: Any, plain: Any) -> Any:
    contents = {"plain": plain, "__module__": mixin.__module__, "__doc__": mixin.__doc__}
    return type(f"{mixin.__name__}{plain.__name__}", (mixin, plain), contents | mixin.members(plain))


def _blank(mixins: tuple[Any, ...], kind: Any) -> Any:
    for mixin in reversed(mixins):
        kind = _swapped(mixin, kind)
    return object.__new__(kind)
