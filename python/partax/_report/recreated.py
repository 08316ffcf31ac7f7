"""Functions and objects that are re-created and traced each time: why, and a warning at the third trace."""

import collections
import types
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

from partax._functions.classes import is_enum
from partax._functions.objects import unwrapped
from partax._functions.proof import Proof, callable_text
from partax._report.explain import RetraceWarning

_WARN_AT = 3
_FUNCTION_REMEDY = "create it once and reuse it, or pass what it reads as an argument"

_latest: weakref.WeakKeyDictionary[types.CodeType, tuple[int, weakref.ref[Any]]] = weakref.WeakKeyDictionary()
"""By code, how many functions of it were traced for the first time, and the last of them."""


def warn(text: str, remedy: str, site: tuple[str, int]) -> None:
    warnings.warn_explicit(f"{text}, and traced {_WARN_AT} times so far; {remedy}", RetraceWarning, *site)


def recreated_text(value: Any) -> str:
    """Why a re-created callable, or another object, is not the same as an earlier one; empty if nothing tells."""
    if issubclass(type(value), type):  # `isinstance` asks a user's `__class__`
        return ""
    if callable(value):
        reason = Proof(value).reason
        return f"{callable_text(value)} was re-created and {reason}" if reason else ""
    cls = type(value)
    if cls.__eq__ is object.__eq__ and not is_enum(cls) and cls is not object:
        return f"`{cls.__qualname__}` object was re-created and has no `__eq__`, so it counts by identity"
    return ""


class Recreations:
    """The arguments of one function by which it was traced again since they were re-created."""

    def __init__(self) -> None:
        # Of earlier calls, by path: another function or class is not a re-created one.
        self._kinds: set[tuple[str, str]] = set()
        self._counts: collections.Counter[str] = collections.Counter()
        self._pending: tuple[str, str] | None = None

    def keep(self, statics: Sequence[tuple[str, Any]]) -> None:
        """Remembers what functions, and objects of what classes, are at which path."""
        self._kinds.update((path, callable_text(value)) for path, value in statics)

    def reason(self, difference: str, statics: Sequence[tuple[str, Any]], changed: Sequence[str]) -> str:
        """Why a new key is due to a re-created object: what the native module tells, or else what the values do.

        Args:
          difference: What a callable reads otherwise, with its path.
          statics: The static values of the call that are objects, by path.
          changed: The paths at which the call differs from the earlier one; empty if it looks the same.
        """
        path = difference.partition("`: ")[0].removeprefix("`")
        if not difference:
            candidates = [(p, value) for p, value in statics if not changed or p == changed[0]]
            again = ((p, value) for p, value in candidates if (p, callable_text(value)) in self._kinds)
            texts = ((p, text) for p, value in again if (text := recreated_text(value)))
            path, text = next(texts, ("", ""))
            difference = f"`{path}`: {text}" if text else ""
        if difference:
            self._counts[path] += 1
            if self._counts[path] == _WARN_AT - 1:
                is_object = difference.endswith("by identity")
                remedy = "keep one object, or give its class `__eq__` and `__hash__`" if is_object else _FUNCTION_REMEDY
                self._pending = difference, remedy
        return difference

    def warn(self, site: tuple[str, int]) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            warn(*pending, site)


def first_reason(fun: Any, difference: str) -> tuple[str, int]:
    """Why a function is traced for the first time, and its number among the functions of its code."""
    inner = unwrapped(fun)
    if not isinstance(inner, types.FunctionType):
        return "the first", 1
    count, latest = _latest.get(inner.__code__, (0, None))
    if latest is not None and latest() is inner and not difference:  # with other options, or after `clear_cache`
        return "the first", 1
    _latest[inner.__code__] = count + 1, weakref.ref(inner)
    if count == 0:
        return "the first", 1
    gone = f"{callable_text(fun)} was re-created, and the programs of the earlier one are gone"
    why = difference.removeprefix("``: ") or recreated_text(fun) or gone
    return f"the first of function {count + 1} of this code: {why}", count + 1


def warn_of_function(name: str, reason: str, number: int, site: tuple[str, int]) -> None:
    """Warns of a called function at the third trace of its code."""
    if number == _WARN_AT and " was re-created and " in reason:  # and not only evicted
        warn(f"`{name}`: {reason.partition(': ')[2]}", _FUNCTION_REMEDY, site)
