"""Why a function that jax, Equinox or Flax has compiled is traced again: what differs from its last such call."""

import inspect
import sys
import weakref
from collections.abc import Collection
from typing import Any, NamedTuple

import jax
import numpy as np

from partax._doctor.lines import USERS, rank, running_line
from partax._jax.watched import MISS, static_arguments
from partax._report.part import ValueParts
from partax._report.snapshot import Snapshot, described_call, differences, take_snapshot

# The file and the function that make such a call, and which of its variables is what was called.
_OF_JAX = *MISS, "fun"
_OF_EQUINOX = "equinox/_jit.py", "_call", "jit_wrapper"
_OF_FLAX = "flax/nnx/transforms/compilation.py", "__call__", "self"
_MOST = 2  # differences that are told
ANEW_WITH = "closes over other values of "
CLEARED = "its program was dropped, as `jax.clear_caches()` does"
BESIDE = "it is a function beside those that were compiled before, which live on"  # as of a list of them


class _Call(NamedTuple):
    compiled: Any  # what the caller keeps as long as the compiled function
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Calls:
    """The latest call of each function, as far as a trace depends on it."""

    def __init__(self) -> None:
        self._latest: dict[Any, Snapshot] = {}
        self._closed_over: dict[Any, dict[str, int]] = {}
        self._alive: dict[Any, list[weakref.ref[Any]]] = {}  # what was compiled of each function

    def reason(self) -> str:
        """What differs in the call under way, for which a function is traced, from the one before for which it was;
        empty where that is not known.
        """
        try:
            return self._reason()
        except Exception:  # of the user's own objects
            return ""

    def _reason(self) -> str:
        call = _under_way()
        if call is None:
            return ""
        code = getattr(call.function, "__code__", None) or type(call.function)
        described, leaves = described_call(*call[1:])
        # Operations of jax's by themselves share a function: those of one line are compared.
        key = code if rank(getattr(code, "co_filename", "")) else (code, running_line())
        before, closed_before = self._latest.get(key), self._closed_over.get(key, {})
        closed = self._closed_over[key] = _closed_over(call.function) if key is code else {}
        now = self._latest[key] = take_snapshot(described, leaves, leaves, ValueParts(False, True), before)
        alive = [it() for it in self._alive.get(key, ())]
        is_known = any(it is call.compiled for it in alive)
        if not is_known:
            self._alive[key] = [weakref.ref(it) for it in (*alive, call.compiled) if it is not None]
            if alive and None not in alive and key is code:
                return BESIDE
        if before is None:
            return ""
        changes = list(map(str, differences(before, now)))
        more = f" and {len(changes) - _MOST} more" if len(changes) > _MOST else ""
        others = [f"`{name}`" for name, it in closed.items() if it != closed_before.get(name, it)]
        with_others = f", and {ANEW_WITH}{', '.join(others)}" if others else ""
        anew = CLEARED if is_known else f"it was made anew, for arguments of the same types{with_others}"
        return ", ".join(changes[:_MOST]) + more or anew


def _closed_over(function: Any) -> dict[str, int]:
    """The addresses of the values that a function closes over, by name; of functions nothing, which tell little."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    pairs = zip(names, getattr(function, "__closure__", None) or (), strict=False)
    return {name: id(it.cell_contents) for name, it in pairs if not callable(it.cell_contents)}


def _under_way() -> _Call | None:
    found, static = None, None
    frame = sys._getframe(1)
    while frame is not None and rank(frame.f_code.co_filename) != USERS:
        code = frame.f_code
        for kind in (_OF_JAX, _OF_EQUINOX, _OF_FLAX):  # a library's are around that of jax
            file, name, variable = kind
            if code.co_name == name and code.co_filename.replace("\\", "/").endswith(file):
                known = frame.f_locals
                found = _Call(known[variable], inspect.unwrap(known[variable]), known["args"], known["kwargs"])
                if kind is _OF_JAX:
                    static = static_arguments(known)
                elif kind is _OF_EQUINOX:  # which leaves every number static
                    static = None
        frame = frame.f_back
    return found if found is None or static is None else _with_arrays(found, static)


def _with_arrays(call: _Call, static: Collection[int | str]) -> _Call:
    """With arrays in the place of Python numbers, which jax traces where an argument is not static."""

    def traced(it: Any) -> Any:
        return np.asarray(it) if isinstance(it, (bool, int, float, complex)) else it

    args = [it if {i, i - len(call.args)} & {*static} else jax.tree.map(traced, it) for i, it in enumerate(call.args)]
    kwargs = {name: it if name in static else jax.tree.map(traced, it) for name, it in call.kwargs.items()}
    return _Call(call.compiled, call.function, tuple(args), kwargs)
