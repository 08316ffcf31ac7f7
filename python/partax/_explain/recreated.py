"""Why a re-created function is another one, and how many of its code there were."""

import types
import weakref
from typing import Any

from partax._functions.objects import unwrapped
from partax._functions.proof import Proof, callable_text

_latest: weakref.WeakKeyDictionary[types.CodeType, tuple[int, weakref.ref[Any]]] = weakref.WeakKeyDictionary()
"""By code, how many functions of it were traced for the first time, and the last of them."""


def recreated_text(value: Any, by_identity: bool = False) -> str:
    """Why a re-created callable is not the same as an earlier one; empty if nothing tells."""
    if not callable(value) or issubclass(type(value), type):  # `isinstance` asks a user's `__class__`
        return ""
    reason = "is compared by identity, since reuse_equal_functions=False" if by_identity else Proof(value).reason
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
