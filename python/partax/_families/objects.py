"""How users' objects are read: attributes that may raise, past what a metaclass makes up."""

import copy
import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

_Object = TypeVar("_Object")
_Result = TypeVar("_Result")


def attempt(default: _Result, function: Callable[..., _Result], *args: Any) -> _Result:
    """What a function that may run code of the user returns; the default if it raises."""
    try:
        return function(*args)
    except MemoryError:
        raise
    except Exception:
        return default


def attribute_of(value: Any, name: str, default: Any = None) -> Any:
    return attempt(default, getattr, value, name, default)


def equal_copy(value: Any) -> Any:
    """A deep copy, or the object itself if there is none that is equal. Called by C++."""
    copied = attempt(value, copy.deepcopy, value)
    return copied if attempt(False, lambda: bool(copied == value)) else value


def unwrapped(fun: Any) -> Any:
    for _ in range(100):  # `isinstance` would ask a user's `__class__`
        inner = fun.func if issubclass(type(fun), functools.partial) else attribute_of(fun, "__wrapped__")
        inner = attribute_of(fun, "__func__") if inner is None else inner
        if not callable(inner):
            break
        fun = inner
    return fun


# Of classes, past the attributes that a metaclass makes up.
entries_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_flags_of: Callable[[type], int] = type.__dict__["__flags__"].__get__
_IMMUTABLE_TYPE, _HEAP_TYPE = 1 << 8, 1 << 9


def is_written_in_c(cls: type) -> bool:
    """Whether the entries of a class never change: it is not on the heap, or immutable."""
    return _flags_of(cls) & (_IMMUTABLE_TYPE | _HEAP_TYPE) != _HEAP_TYPE


def cached_by_identity(function: Callable[[_Object], _Result]) -> Callable[[_Object], _Result]:
    """Calls a function once for each object, by identity, as long as the object lives."""
    results: dict[int, tuple[weakref.ref[_Object], _Result]] = {}

    @functools.wraps(function)
    def cached(value: _Object) -> _Result:
        entry = results.get(id(value))
        if entry is None or entry[0]() is not value:
            address = id(value)
            entry = results[address] = (weakref.ref(value, lambda _: results.pop(address, None)), function(value))
        return entry[1]

    return cached
