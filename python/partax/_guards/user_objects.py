"""How objects of users are asked: attributes that may raise, what a wrapper leads to, one answer for each object."""

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar


def read(value: Any, name: str, default: Any = None) -> Any:
    """An attribute of a user's object; the default where asking for it raises, whatever it is."""
    try:
        return getattr(value, name, default)
    except MemoryError:
        raise
    except Exception:
        return default


def unwrapped(fun: Any) -> Any:
    for _ in range(100):
        inner = fun.func if isinstance(fun, functools.partial) else read(fun, "__wrapped__")
        inner = read(fun, "__func__") if inner is None else inner
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
    """Whether a class is one of C, whose entries never change: not made on the heap, or closed as newer Pythons do."""
    return _flags_of(cls) & (_IMMUTABLE_TYPE | _HEAP_TYPE) != _HEAP_TYPE


_Asked = TypeVar("_Asked")
_Result = TypeVar("_Result")


def asked_once(function: Callable[[_Asked], _Result]) -> Callable[[_Asked], _Result]:
    """Asks once of each object, by identity, as long as it lives."""
    known: dict[int, tuple[weakref.ref[_Asked], _Result]] = {}

    @functools.wraps(function)
    def ask(it: _Asked) -> _Result:
        found = known.get(id(it))
        if found is None or found[0]() is not it:
            place = id(it)
            found = known[place] = (weakref.ref(it, lambda _: known.pop(place, None)), function(it))
        return found[1]

    return ask
