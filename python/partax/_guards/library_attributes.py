"""What code can read of modules, classes and functions on the list, but which others may set: attributes."""

import contextlib
import importlib
import sys
import types
from collections.abc import Iterable, Set
from typing import Any

import jax
import numpy as np

from partax._guards.installed import is_installed
from partax._guards.pure import is_listed, is_listed_module, is_pure, module_of, package_of
from partax._guards.user_objects import entries_of, is_written_in_c, mro_of, read

CONSTANTS = (types.NoneType, bool, float, int, str)
_METHOD_OF_JAXLIB = type(vars(jax.sharding.NamedSharding).get("__init__"))  # before jax 0.10 not a closed class
ABSENT: Any = object()  # stands for an attribute that is not there
Pair = tuple[Any, str]
"""A module, class or function, and the name of an attribute; or the table of modules, and the name of one."""


def others_attributes(values: Iterable[Any], names: Set[str], *, can_miss: bool) -> tuple[list[Pair], str]:
    """What code with these values and names of attributes can read of modules and libraries, but others may set.

    Gives constants, what is on the list and, if it `can_miss` one, what is not there, in an order that another process
    has too; and what is something else, or a module that is not on the list, or an empty string.
    """
    found, met, waiting = list[Pair](), set[int](), list(values)
    while waiting:
        it = waiting.pop()
        if is_module(it) and not is_listed_module(it):
            return [], f"module '{read(it, '__name__')}'"
        owners = () if id(it) in met else _owners(it)
        met.add(id(it))
        for owner in owners:
            scope = read(owner, "__dict__", {})
            for name in names & scope.keys():
                value = scope[name]
                if type(value) is types.ModuleType and is_module(it):
                    waiting.append(value)
                    found.append((it, name))
                elif not _is_own(value, name, owner):
                    is_known = is_pure(value) or value is jax.Array
                    if type(value) not in CONSTANTS and not issubclass(type(value), np.dtype) and not is_known:
                        return [], name_of(it, name)
                    found.append((it, name))
        if owners and can_miss:
            found += [(it, name) for name in names if value_of(it, name) is ABSENT]
    return sorted(found, key=lambda pair: name_of(*pair)), ""


def find_submodules(chains: Iterable[tuple[str, ...]], scope: dict[str, Any]) -> None:
    """Has modules on the list import what code names of them, as `jax.scipy.special`, and they import when asked."""
    for chain in chains:
        it = scope.get(chain[0])
        for name in chain[1:]:
            if not is_module(it) or not is_listed_module(it):
                break
            if name not in vars(it):
                with contextlib.suppress(Exception):  # of whatever module is imported
                    importlib.import_module(f"{vars(it)['__name__']}.{name}")
            it = vars(it).get(name)


def leads_to_others(it: Any) -> bool:
    """Whether others may have set attributes on it that code can read: a module, or something on the list."""
    return is_module(it) or bool(_owners(it))


def is_module(it: Any) -> bool:
    return issubclass(type(it), types.ModuleType)


def value_of(it: Any, name: str) -> Any:
    # Modules may be asked for more than they hold, and warn of it.
    scope = it if it is sys.modules else vars(it) if is_module(it) else None
    return getattr(it, name, ABSENT) if scope is None else scope.get(name, ABSENT)


def name_of(it: Any, name: str) -> str:
    """How an attribute of a module, class or function is called, such as `optax.sgd.mine`."""
    if it is sys.modules:
        return f"module '{name}'"
    return f"{it.__name__}.{name}" if is_module(it) else f"{module_of(it)}.{read(it, '__qualname__')}.{name}"


def _owners(it: Any) -> tuple[Any, ...]:
    """Whose attributes code can read by something on the list; asks nothing of the user's own objects."""
    if not is_module(it) and not (callable(it) and is_pure(it)):
        return ()
    return mro_of(it) if isinstance(it, type) else (it,)


def inside(value: Any, depth: int = 2) -> Any:
    """What a class calls where an entry of it is asked for or called."""
    inner = next((it for part in ("__func__", "fget", "func") if (it := read(value, part)) is not None), None)
    return value if inner is None or depth == 0 else inside(inner, depth - 1)  # also that of a partial in a property


class SetByOthersError(TypeError):
    """A library's class has a function that is not the library's."""


def entries_of_library(cls: type) -> list[tuple[str, Any]]:
    """The constants and functions that a library's class has or somebody has set; raises where one is the user's."""
    owners = (it for it in mro_of(cls) if is_installed(it.__module__) and not is_written_in_c(it))
    entries = ((it, *entry) for it in owners for entry in entries_of(it).copy().items())
    # A text may tell where something lies in memory, and makes no difference.
    return [(name, _functions_in(value, name, owner)) for owner, name, value in entries if name != "__doc__"]


def _functions_in(value: Any, name: str, owner: type) -> Any:
    """The modules and names of what an entry of a library's class calls, also in wrappers; or a constant itself."""
    it, found = None if type(value) in CONSTANTS else inside(value), list[tuple[str, str]]()
    while it is not None and len(found) < 100:
        is_function = type(it) is types.FunctionType
        source = it.__globals__.get("__name__") if is_function else type(it).__module__
        is_known = is_installed(source) or (is_function and source == f"namedtuple_{owner.__name__}")
        if not (is_known or (not is_function and (is_written_in_c(type(it)) or type(it) is _METHOD_OF_JAXLIB))):
            raise SetByOthersError(f"`{owner.__qualname__}.{name}`, which is not the library's")
        found.append((str(source), str(read(it, "__qualname__"))))
        it = read(it, "__wrapped__")
    return found or value


def _is_own(value: Any, name: str, owner: Any) -> bool:
    """Whether a library has defined an entry: what is in it, in whatever its class has it, is on the list, called so,
    and of the same library.
    """
    inner = inside(value)
    is_function, cls = type(inner) is types.FunctionType, type(inner)
    if owner is jax.Array:  # the base of random keys, for whose methods jax has other names
        modules = "jax._src.basearray", "jax._src.numpy.array_methods"
        return is_function and inner.__globals__.get("__name__") in modules  # as others may copy its `__module__`
    is_of_library = is_written_in_c(cls) or (is_pure(cls) and package_of(cls) == package_of(owner))
    if not is_function and hasattr(cls, "__get__") and is_of_library:
        return read(inner, "__objclass__", owner) is owner
    is_known = is_listed(inner.__module__, inner.__qualname__) if is_function else callable(inner) and is_pure(inner)
    return is_known and read(inner, "__name__") == name and package_of(inner) == package_of(owner)
