"""What code can read of modules, and of classes and functions on the list, but which others may set: attributes."""

import abc
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from partax import _core
from partax._guards.pure import is_listed, is_listed_module, is_pure, module_of
from partax._guards.user_objects import entries_of, is_written_in_c, mro_of, read

_CONSTANTS = (types.NoneType, bool, float, int, str)
ABSENT: Any = object()  # stands for an attribute that is not there
REGISTRATIONS = "<registrations>"
"""Of the module `abc`: how many classes were registered as subclasses of others."""
Pair = tuple[Any, str]
"""An object, and the name of an attribute; of `sys.modules` the name of a module."""


def constants_of(module: types.ModuleType, names: Set[str]) -> list[Pair] | None:
    """What code that has a module, and these names for attributes, gets out of it, but for what a library defines.

    Args:
      module: it has it as a value.
      names: of all attributes in the code.

    Returns:
      The attributes of the module and of the modules that it leads to; None if there are others than constants,
      modules, and functions and classes on the list.
    """
    seen, pending, found = {id(module)}, [module], list[Pair]()
    while pending:
        known = pending.pop()
        scope = vars(known)
        name_of_it = scope["__name__"]
        is_library = is_listed_module(name_of_it)
        if not is_library and ("__getattr__" in scope or type(known) is not types.ModuleType):
            return None
        for name in names & scope.keys():
            value = scope[name]
            if issubclass(type(value), types.ModuleType):
                pending += [value] if id(value) not in seen else []
                seen.add(id(value))
                found += [] if is_library else [(known, name)]
            elif type(value) in _CONSTANTS and is_listed(name_of_it, name):
                found.append((known, name))
            elif not is_pure(value):
                return None
            elif not is_library or not _is_called(value, name, name_of_it):
                found.append((known, name))
    return found


def others_attributes(
    modules: Iterable[types.ModuleType], values: Iterable[Any], names: Set[str], *, can_miss: bool
) -> list[Pair]:
    """What code can read of modules and libraries, but others may set.

    Args:
      modules: those that it has as values.
      values: all that it has.
      names: of all attributes in it.
      can_miss: whether it can do without one, so that it counts which are not there.

    Returns:
      The attributes, in an order that another process has too.
    """
    found = [pair for module in modules for pair in constants_of(module, names) or ()]
    met = {id(value): value for value in (*modules, *values)}.values()
    found += [(value, name) for value in met for name in _set_on(value, names)]
    if can_miss:
        found += [(value, name) for value in met for name in _not_set_on(value, names)]
    return sorted(found, key=lambda pair: name_of(*pair))


def asking_too(ask: Callable[[Any], tuple[Any, ...]], attributes: list[Pair]) -> Callable[[Any], Any]:
    """What asks for settings, and for these attributes too."""

    def ask_both(settings: Any) -> tuple[Any, ...]:
        return *ask(settings), *(value_of(it, name) for it, name in attributes)

    return ask_both


def value_of(it: Any, name: str) -> Any:
    """An attribute, or `ABSENT`."""
    if it is sys.modules:
        return sys.modules.get(name, ABSENT)
    if it is abc and name == REGISTRATIONS:
        return _core.num_registrations(it)
    # Modules may be asked for more than they hold, and warn of it.
    return vars(it).get(name, ABSENT) if issubclass(type(it), types.ModuleType) else getattr(it, name, ABSENT)


def name_of(it: Any, name: str) -> str:
    """How an attribute of a module, class or function is called, such as `optax.sgd.mine`."""
    if it is sys.modules:
        return f"import {name}"
    if issubclass(type(it), types.ModuleType):
        return f"{it.__name__}.{name}"
    return f"{read(it, '__module__')}.{read(it, '__qualname__')}.{name}"


def _not_set_on(it: Any, names: Set[str]) -> Set[str]:
    """Of a module, class or function of a library, the attributes by these names that are not there."""
    if issubclass(type(it), types.ModuleType):
        absent = names - vars(it).keys()
        return absent | {"__getattr__"} if absent else absent
    is_open = bool(_scopes(it)) and is_pure(it)
    return {name for name in names if value_of(it, name) is ABSENT} if is_open else set()


def _set_on(it: Any, names: Set[str]) -> list[str]:
    """Of a class or function on the list, the attributes by these names that its library has not defined."""
    present = [(owner, scope[name], name) for owner, scope in _scopes(it) for name in names & scope.keys()]
    if not present or not is_pure(it):
        return []
    return [name for owner, value, name in present if not _is_own(value, name, owner)]


def _scopes(it: Any) -> list[tuple[Any, Mapping[str, Any]]]:
    """Where the attributes are of what may be on the list, and whose; asks nothing of the user's own objects."""
    if issubclass(type(it), type):
        return [(cls, entries_of(cls)) for cls in mro_of(it)]
    if type(it) is types.FunctionType:
        return [(it, it.__dict__)]
    if issubclass(type(it), types.ModuleType) or not callable(it) or not is_pure(it):
        return []
    scope = read(it, "__dict__")
    return [(it, scope)] if type(scope) is dict else []


def _is_own(value: Any, name: str, owner: Any) -> bool:
    """Whether a library has defined an entry: a function or class by its name, in whatever its class has it."""
    inner = next((it for part in ("__func__", "fget", "func") if (it := read(value, part)) is not None), value)
    if type(inner) is types.FunctionType:
        return is_listed(inner.__module__, inner.__qualname__) and _is_called(inner, name, owner)
    if hasattr(type(value), "__get__") and is_written_in_c(type(value)):
        return read(value, "__objclass__", owner) is owner
    return callable(value) and is_pure(value) and _is_called(value, name, owner)


def _is_called(value: Any, name: str, owner: Any) -> bool:
    """Whether a function or class has this name, and is of the same library as its owner or a module of that name."""
    module = owner if type(owner) is str else module_of(owner)
    own_name, package = read(value, "__name__"), module_of(value).partition(".")[0]
    return own_name == name and package == module.partition(".")[0]
