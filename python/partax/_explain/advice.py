"""Warnings at the third trace that one static number, or one re-created function or object, has caused."""

import collections
import re
import types
import warnings
import weakref
from collections.abc import Collection
from typing import Any

from partax._explain.differences import Change, is_below
from partax._explain.explain import RetraceWarning
from partax._functions.objects import unwrapped
from partax._functions.proof import callable_text, prove

_WARN_AT = 3
_VALUES = 256  # of one static number that are counted
_FUNCTION_REMEDY = "create it once and reuse it, or pass what it reads as an argument"
_OBJECT_REMEDY = "keep one object, or give its class `__eq__` and `__hash__`"

_latest: weakref.WeakKeyDictionary[types.CodeType, tuple[int, weakref.ref[Any]]] = weakref.WeakKeyDictionary()
"""By code, how many functions of it were traced for the first time, and the last of them."""


def recreated_text(value: Any, by_identity: bool = False) -> str:
    """Why a re-created callable is not the same as an earlier one; empty if nothing tells."""
    reason = "is compared by identity, since reuse_equal_functions=False" if by_identity else prove(value).reason
    return f"{callable_text(value)} was re-created and {reason}" if reason else ""


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


class Advice:
    """What has caused the traces of one function, and what to do about it."""

    def __init__(self, name: str):
        self._name = name
        self._values: dict[str, set[str]] = {}  # of numbers, by path, each of which is a trace
        self._recreated: collections.Counter[str] = collections.Counter()
        self._is_given = set[str]()  # the paths that explanations have had it for
        self._is_warned = set[str]()

    def count_numbers(self, changes: list[Change]) -> None:
        """Counts a trace that only static numbers have caused."""
        if all(change.numbers is not None for change in changes):
            for change in changes:
                values = self._values.setdefault(change.path, set())
                values.update(change.numbers or () if len(values) < _VALUES else ())

    def text(self, change: Change, fields: Collection[str], arguments: Collection[str]) -> str:
        """How often a number has caused a trace, and once what to do."""
        if change.numbers is None:
            return ""
        advice = "" if change.path in self._is_given else f": {_advice(change.path, fields, arguments)}"
        self._is_given.add(change.path)
        return f" ({len(self._values.get(change.path, '12'))} traces so far{advice})"

    def warn_of_numbers(
        self, changes: list[Change], fields: Collection[str], arguments: Collection[str], site: tuple[str, int]
    ) -> None:
        for path in (change.path for change in changes if change.numbers is not None):
            count = len(self._values.get(path, ()))
            if count < _WARN_AT or path in self._is_warned:
                continue
            of_all = ", or dynamic=partax.is_array_like for all numbers of all arguments" if self._is_warned else ""
            self._is_warned.add(path)
            text = f"{count} values of the static Python number `{path}` are a trace of `{self._name}` each"
            _warn(f"{text}; {_advice(path, fields, arguments)}{of_all}", site)
            return

    def warn_of_recreated(self, path: str, text: str, is_object: bool, site: tuple[str, int]) -> None:
        """Counts what was re-created, and warns at the third trace."""
        self._recreated[path] += 1
        if self._recreated[path] == _WARN_AT - 1:
            _warn_of_recreated(text, _OBJECT_REMEDY if is_object else _FUNCTION_REMEDY, site)

    def warn_of_function(self, reason: str, number: int, site: tuple[str, int]) -> None:
        """Warns of the called function at the third trace of its code."""
        if number == _WARN_AT and " was re-created and " in reason:  # and not only evicted
            _warn_of_recreated(f"`{self._name}`: {reason.partition(': ')[2]}", _FUNCTION_REMEDY, site)


def _warn(text: str, site: tuple[str, int]) -> None:
    warnings.warn_explicit(text, RetraceWarning, *site)


def _warn_of_recreated(text: str, remedy: str, site: tuple[str, int]) -> None:
    _warn(f"{text}, and traced {_WARN_AT} times so far; {remedy}", site)


def _advice(path: str, fields: Collection[str], arguments: Collection[str]) -> str:
    """What to do about a number, each of which is another trace."""
    owner, _, name = path.rpartition(".")
    if any(path == field or is_below(path, field) for field in fields):
        whole, aux, _ = path.partition(".<aux data>")
        if aux:
            return f"it is aux data of `{whole}`: make it a child that is an array"
        return f"it is a static field of `{owner}`: make it one that holds an array"
    argument = re.split(r"[.\[]", path, maxsplit=1)[0]
    return f"pass jnp.asarray({name})" + (f', or dynamic=("{argument}",)' if argument in arguments else "")
