"""What is registered for classes, by what another process finds again: functions of users, and subclasses."""

import abc
import operator
import sys
import types
from typing import Any

from partax._families.equinox import module_class
from partax._guards.installed import is_installed
from partax._guards.user_objects import asked_once, entries_of, mro_of, read, unwrapped
from partax._jax.nodes import is_registered_dataclass, registered_functions, registered_nodes
from partax._store import UnstoredError


def registrations(cls: type) -> Any:
    """The names of all classes that an abstract class, or one below it, was told to take for its subclasses."""
    if not isinstance(cls, abc.ABCMeta):
        return ()
    found, waiting, seen = set[tuple[str, str]](), [cls], set[int]()
    while waiting:
        known = waiting.pop()
        if id(known) in seen or not isinstance(known, abc.ABCMeta):
            continue
        seen.add(id(known))
        if known is not cls and "__subclasshook__" in entries_of(known) and not is_installed(known.__module__):
            raise UnstoredError(f"`{known.__qualname__}`, which decides by itself what its subclasses are")
        registered = [it for ref in vars(abc)["_get_dump"](known)[0] if (it := ref()) is not None]
        found |= set(map(_name, registered))
        waiting += registered + type.__subclasses__(known)
    return sorted(found)


def found_by_name(it: Any) -> str | None:
    """The module in which a class or function is what its name leads to; a result that is stored may have it so."""
    found: Any = sys.modules.get(it.__module__)
    for part in it.__qualname__.split("."):
        found = read(found, part)
    return it.__module__ if found is it else None


def _name(cls: type) -> tuple[str, str]:
    if found_by_name(cls) is None and not is_installed(cls.__module__):
        raise UnstoredError(f"`{cls.__qualname__}`, a registered class that is not found by its name")
    return cls.__module__, cls.__qualname__


def registered_by_users() -> dict[tuple[str, str], Any]:
    """The functions by which jax takes apart objects of Python's or a library's classes, where they are the user's.

    Any function of a library may make such an object, so code need not name its class.
    """
    classes = [cls for cls in [*(registered_nodes() or {})] if _is_registered_by_user(cls)]
    found = {(cls.__module__, cls.__qualname__): registered_functions(cls) for cls in classes}
    return dict(sorted(found.items()))


@asked_once
def _is_registered_by_user(cls: type) -> bool:
    module = cls.__module__
    is_library = is_installed(module) or is_installed(module.partition(".")[0])  # some modules of C have no file
    functions = registered_functions(cls) if is_library and module_class() not in mro_of(cls) else None
    return not all(map(_is_of_library, functions or ()))


def _is_of_library(function: Any) -> bool:
    inner = unwrapped(function)
    if type(inner) is not types.FunctionType:
        return isinstance(inner, (type, types.BuiltinFunctionType, operator.methodcaller))
    held = [unwrapped(read(cell, "cell_contents")) for cell in inner.__closure__ or ()]  # jax's own may call another's
    functions = [it for it in (inner, *held) if type(it) is types.FunctionType]
    return all(is_installed(it.__globals__.get("__name__")) for it in functions)


def registered_fields(cls: type) -> Any:
    """The names that `jax.tree_util.register_dataclass` was given for a library's class."""
    entry = (registered_nodes() or {}).get(cls) if is_registered_dataclass(cls) else None
    held = [read(cell, "cell_contents") for cell in read(read(entry, "to_iter"), "__closure__") or ()]
    return [it for it in held if type(it) is tuple]
