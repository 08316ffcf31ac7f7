"""What code can read of the modules, classes and functions on the list, but which others may set: their attributes."""

import types
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from partax._guards.pure import is_listed, is_listed_module, is_pure
from partax._guards.user_objects import entries_of, is_written_in_c, mro_of, read

_CONSTANTS = (types.NoneType, bool, float, int, str)
ABSENT: Any = object()  # stands for an attribute that is not there


def constants_of(module: types.ModuleType, names: Set[str]) -> list[tuple[Any, str]] | None:
    """What code that has a module, and these names for attributes, gets out of it beside what is pure.

    Args:
      module: it has it as a value.
      names: of all attributes in the code.

    Returns:
      The constants of the module and of those that it leads to, each as a module and a name; None if there is more.
    """
    seen, pending, found = {id(module)}, [module], list[tuple[Any, str]]()
    while pending:
        known = pending.pop()
        scope = vars(known)
        name_of_it = scope["__name__"]
        if not is_listed_module(name_of_it) and ("__getattr__" in scope or type(known) is not types.ModuleType):
            return None
        for name in names & scope.keys():
            value = scope[name]
            if issubclass(type(value), types.ModuleType):
                pending += [value] if id(value) not in seen else []
                seen.add(id(value))
            elif type(value) in _CONSTANTS and is_listed(name_of_it, name):
                found.append((known, name))
            elif not is_pure(value):
                return None
    return found


def others_attributes(
    modules: Iterable[types.ModuleType], values: Iterable[Any], names: Set[str], missed: Set[str]
) -> list[tuple[Any, str]]:
    """What code can read of libraries, but others may set.

    Args:
      modules: those that it has as values.
      values: all that it has.
      names: of all attributes in it.
      missed: of those that it can do without, so that it counts if they are not there.

    Returns:
      Each as an object and the attribute's name, in an order that another process has too.
    """
    found = [pair for module in modules for pair in constants_of(module, names) or ()]
    met = {id(value): value for value in (*modules, *values)}.values()
    found += [(value, name) for value in met for name in _set_on(value, names)]
    if missed:
        found += [(value, name) for value in met for name in _not_set_on(value, missed)]
    return sorted(found, key=lambda pair: name_of(*pair))


def asking_too(ask: Callable[[Any], tuple[Any, ...]], attributes: list[tuple[Any, str]]) -> Callable[[Any], Any]:
    """What asks for settings, and for these attributes too."""

    def ask_both(settings: Any) -> tuple[Any, ...]:
        return *ask(settings), *(of_library(it, name) for it, name in attributes)

    return ask_both


def of_library(it: Any, name: str) -> Any:
    """An attribute of a module, class or function of a library, or `ABSENT`."""
    # Modules may be asked for more than they hold, and warn of it.
    return vars(it).get(name, ABSENT) if issubclass(type(it), types.ModuleType) else getattr(it, name, ABSENT)


def _not_set_on(it: Any, names: Set[str]) -> Set[str]:
    """Of a module, class or function of a library, the attributes by these names that are not there."""
    if issubclass(type(it), types.ModuleType):
        return names - vars(it).keys()
    is_open = bool(_scopes(it)) and is_pure(it)
    return {name for name in names if of_library(it, name) is ABSENT} if is_open else set()


def _set_on(it: Any, names: Set[str]) -> list[str]:
    """Of a class or function on the list, the attributes by these names that are not pure themselves."""
    present = [(scope, name) for scope in _scopes(it) for name in names & scope.keys()]
    if not present or not is_pure(it):
        return []
    return [name for scope, name in present if not _is_own(scope[name])]


def name_of(it: Any, name: str) -> str:
    """How an attribute of a module, class or function is called, such as `optax.sgd.mine`."""
    if issubclass(type(it), types.ModuleType):
        return f"{it.__name__}.{name}"
    return f"{read(it, '__module__')}.{read(it, '__qualname__')}.{name}"


def _scopes(it: Any) -> list[Mapping[str, Any]]:
    """Where the attributes are of what may be on the list; asks nothing of the user's own objects."""
    if issubclass(type(it), type):
        return [entries_of(cls) for cls in mro_of(it)]
    if type(it) is types.FunctionType:
        return [it.__dict__]
    if issubclass(type(it), types.ModuleType) or not callable(it) or not is_pure(it):
        return []
    scope = read(it, "__dict__")
    return [scope] if type(scope) is dict else []


def _is_own(value: Any) -> bool:
    """Whether a library has defined an entry: a function or class of the list, in whatever its class has it."""
    inner = next((it for name in ("__func__", "fget", "func") if (it := read(value, name)) is not None), value)
    if type(inner) is types.FunctionType:
        return is_listed(inner.__module__, inner.__qualname__)
    is_descriptor_of_c = hasattr(type(value), "__get__") and is_written_in_c(type(value))
    return is_descriptor_of_c or (callable(value) and is_pure(value))
