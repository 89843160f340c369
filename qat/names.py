"""Names that users give: glob patterns, import paths, and errors that list the nearest names."""

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

MAX_LENGTH = 400


def match_names(pattern: str, names: Iterable[str], what: str) -> list[str]:
    """Names that match a glob pattern; `*` matches any characters, dots too (`blocks.*.conv`, `*bn1`).

    Raises:
        ValueError: no name matches; the message calls the pattern by `what` and lists the nearest names.
    """
    names = list(names)
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise ValueError(f"{what} {pattern!r} matches nothing; {_nearest(pattern, names)}")
    return found


def check_class_names(names: object, count: int) -> tuple[str, ...]:
    """The names of `count` classes as a tuple.

    Raises:
        ValueError: they are not a list of `count` texts; a lone surrogate or a NUL is no text in a file.
    """
    listed = tuple(names) if isinstance(names, list | tuple) else ()
    wrong = [name for name in listed if not isinstance(name, str) or "\0" in name or not _is_unicode(name)]
    if wrong or len(listed) != count:
        got = f"{wrong[0]!r}" if wrong else f"{len(listed)} in {names!r}"
        rule = f"class_names must be a list of {count} texts, one for each class, got {got}"
        raise ValueError(f"{rule}; name each class, or leave them out")
    return listed


def _is_unicode(name: str) -> bool:
    return not any(0xD800 <= ord(character) < 0xE000 for character in name)


def unknown_name(what: str, name: object, known: Iterable[str]) -> ValueError:
    """The error for a name that is not among the `known` ones; its message lists the nearest of them."""
    return ValueError(f"unknown {what} {name!r}; {_nearest(str(name), list(known))}")


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=3, cutoff=0.5) or [k for k in known if name and name in k][:3]
    if close:
        return f"nearest: {', '.join(close)}"
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    return f"choose from: {shown}"


def is_import_path(name: str) -> bool:
    """Whether a name is an import path, not the short name of a part of this package."""
    return "." in name or ":" in name


def stored_name(what: str, part: Any, known: Mapping[str, Any]) -> Any:
    """The text by which a file names a part: its name among the `known` ones, or its import path with dots.

    What is no text, function or class is returned as it is.

    Raises:
        ValueError: a function or class that no import path finds again, in another process: a lambda, a
            partial, a local function, or one of the script that runs; the message calls it `what`.
    """
    if isinstance(part, str):
        return part if part in known else part.replace(":", ".")
    if not callable(part):
        return part
    short = next((name for name, each in known.items() if each is part), None)
    if short is not None:
        return short
    owner = getattr(part, "__self__", None)
    place = owner if isinstance(owner, type) else part  # of a classmethod, such as the apply of a Function
    module, name = getattr(place, "__module__", None), getattr(place, "__qualname__", None)
    path = f"{module}.{name}" if place is part else f"{module}.{name}.{part.__name__}"
    try:
        is_found = module != "__main__" and imported(what, path, loads=False) == part
    except ValueError:
        is_found = False
    if not is_found:
        rule = f"{what} must be found by name in a module, or no file could name it; got {one_line(part)}"
        remedy = "import it from a module of its own, or give an import path such as my_module.my_name"
        raise ValueError(f"{rule}{' of the script that runs' if module == '__main__' else ''}; {remedy}")
    return path


def imported(what: str, path: str, loads: bool = True) -> Any:
    """What an import path names: `module.name`, `module:name` or `module.Class.name`.

    Modules are looked for in the current folder too. One that is not loaded yet is imported, which runs its
    code, or refused where `loads` is False.
    Python's own library is refused, also where a module has imported from it: it holds no network and no
    rounding, but functions that run programs.

    Raises:
        ValueError: there is no such module or name, or the module's code raises; the message calls the path
            by `what`.
    """
    first, *names = path.replace(":", ".").split(".")
    if not names or not all(name.isidentifier() for name in (first, *names)):
        raise ValueError(f"{what} must be an import path such as my_module.my_name, got {path!r}")

    def module(name: str) -> ModuleType:
        if not loads and name not in sys.modules:
            raise ValueError(f"{what} {path!r}: module {name} is not imported")
        return import_module_of(what, path, name)

    def refuse(module: str) -> None:
        if module in sys.stdlib_module_names:
            rule = f"{what} must be user-defined, not of Python's own library ({module})"
            raise ValueError(f"{rule}; got {path!r}")

    refuse(first)
    found: Any = module(first)
    for number, name in enumerate(names):
        inner = f"{found.__name__}.{name}" if isinstance(found, ModuleType) else ""
        if inner in sys.modules and number < len(names) - 1:
            found = sys.modules[inner]
        elif hasattr(found, name):
            found = getattr(found, name)
        elif inner and hasattr(found, "__path__") and find_spec(inner):
            found = module(inner)
        else:
            owner = getattr(found, "__name__", type(found).__name__)
            raise unknown_name(f"name in {owner}", name, [each for each in dir(found) if each[:2] != "__"])
    if isinstance(found, type) or inspect.isroutine(found):
        refuse((found.__module__ or "").partition(".")[0])
    return found


def import_module_of(what: str, path: str, name: str | None = None) -> ModuleType:
    """Import the module `name` of an import path, by default the whole path; raises ValueError as above."""
    name = path if name is None else name
    try:
        with _here_too():
            return import_module(name)
    except (Exception, SystemExit) as error:  # the module runs the user's code
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            here = Path.cwd()
            close = get_close_matches(name, [file.stem for file in here.glob("*.py")], n=1)
            nearest = f", nearest: {close[0]}" if close else ""
            missing = f"there is no module {name} here or among the packages; here is {here}{nearest}"
            raise ValueError(f"{what} {path!r}: {missing}") from None
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"{what} {path!r}: module {name} cannot be imported: {why}") from error


@contextmanager
def _here_too() -> Iterator[None]:
    """Inside it, modules of the current folder are found, after those of the packages."""
    here = str(Path.cwd())
    invalidate_caches()  # a file may have been written just now
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def one_line(message: object) -> str:
    """The text in one line: each run of white space becomes one space; cut after 400 characters."""
    text = " ".join(str(message).split())
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 3] + "..."
