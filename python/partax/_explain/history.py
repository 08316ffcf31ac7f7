"""All traces of a function: begun, ended, counted, limited and explained."""

import collections
import contextlib
import dataclasses
import functools
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from jax.core import Tracer

from partax import _core
from partax._explain.description import Description
from partax._explain.differences import Difference, count_differences, differences, moved_arrays, reason_of
from partax._explain.explain import RetraceError, explaining, forbidden, report_line
from partax._explain.results import LoadReport
from partax._explain.warner import FUNCTION_REMEDY, WARN_AT, Warner, warn_of_recreation
from partax._families.equinox import jitted_by_equinox
from partax._families.objects import attribute_of, unwrapped
from partax._functions.proof import Proof, callable_text
from partax._jit.options import Options
from partax._jit.static_arrays import ArrayPlace, arrays_in_statics, refuse_static_trees
from partax._pytree.call_site import call_site
from partax._pytree.spec_data import FIELD, VALUE, SpecData, details

_KEPT = 256  # records of one function, and functions, that are kept
_COMPARED = 16  # records that a trace is compared with
_KEPT_CHANGES = 16  # that one record keeps
_FORBIDDEN = "inside partax.debug.forbid_tracing()"


@dataclasses.dataclass(eq=False, repr=False)
class Record:
    description: Description
    first: int = 0  # the number of the first trace of its static key; 0 until it has its own, if it is the first
    epoch: int = 0  # changes when keys are void since a class has been registered as a pytree node
    number: int = 0  # counts the traces of its function, from 1; 0 if the function is not traced
    site: tuple[str, int] = ("", 0)
    reason: str = ""
    changes: Sequence[Difference] = ()  # from the most similar earlier one
    failed: bool = False
    compiled: int = 0  # how often
    seconds: dict[str, float] = dataclasses.field(default_factory=lambda: {"trace": 0.0, "lower": 0.0, "compile": 0.0})
    executables: list[Description] = dataclasses.field(default_factory=list[Description])  # of the further ones
    static_arrays: list[list[ArrayPlace]] | None = None  # until the trace ends
    _history: Callable[[], "History | None"] = lambda: None

    @property
    def array_paths(self) -> list[str]:
        return self.description.array_paths

    @property
    def history(self) -> "History | None":
        """The history that has this record; None if it was deleted."""
        return self._history()


@dataclasses.dataclass(eq=False, repr=False)
class History:
    """All traces of one function, the latest ones as records, oldest first."""

    name: str
    max_traces: int | None
    defined: tuple[str, int] | None = None  # the file and line of its definition
    cache_size: int | None = None  # of the wrapper; None if this counts the traces of another one, which reports them
    is_by_identity: bool = False  # whether a re-created function is always another one
    warns: bool = False  # of what is traced for each value, or each time it is re-created
    function: Callable[[], Any] = lambda: None  # gives it if it lives
    records: list[Record] = dataclasses.field(default_factory=list)
    count: int = 0  # of all traces
    live: int = 0  # since `clear_cache`, without those that raised
    loads: list[LoadReport] = dataclasses.field(default_factory=list)  # each instead of a trace
    number_of_code: int = 1  # how many functions of the same code were traced before it, and itself
    first_reason: str = "the first"
    _cleared_at: int = 0  # the traces up to this one clear_cache has dropped
    _under_way: int = 0  # traces that have begun
    _lock: Any = dataclasses.field(default_factory=threading.RLock)  # threads may trace one function at once

    def __post_init__(self) -> None:
        self._warner = Warner(self.name)

    def cleared(self) -> None:
        self._cleared_at = self.count
        self.live = 0

    def begin(self, record: Record, difference: str = "", is_full: bool = False, data: SpecData = ((), (), ())) -> None:
        """Add a trace, or raise a RetraceError if there may be no more.

        `difference` is what a re-created callable of the call reads, if that makes its key another one than an earlier
        one; `is_full` says whether the cache holds as many static keys as it may.
        """
        record.site = call_site()
        with self._lock:
            record.reason = self._explain(record, difference, is_full, data)
            self._under_way += 1
            self.count += 1
            self.live += 1
            record.number = self.count
            record.first = record.first or record.number
            record._history = weakref.ref(self)
            self.records.append(record)
            del self.records[:-_KEPT]
        if explaining() and self.cache_size is not None:
            because = "because " if record.number > 1 else ""
            report_line(record.site, f"{self.name}: trace {record.number}, {because}{record.reason}")

    def _explain(self, record: Record, difference: str, is_full: bool, data: SpecData) -> str:
        if not self.records:
            self._check_limits(self.first_reason)
            is_recreated = " was re-created and " in self.first_reason  # and not only evicted
            if self.warns and is_recreated and self.number_of_code == WARN_AT:
                text = f"`{self.name}`: {self.first_reason.partition(': ')[2]}"
                warn_of_recreation(text, FUNCTION_REMEDY, record.site)
            return self.first_reason
        of_key = [earlier for earlier in self.records if earlier.first == record.first] or self.records
        recent = reversed(of_key[-_COMPARED:])
        nearest = min(recent, key=lambda earlier: count_differences(earlier.description, record.description))
        changes = differences(nearest.description, record.description)
        record.changes = changes[:_KEPT_CHANGES]
        culprit = "" if record.first else difference
        if not (record.first or changes or culprit or nearest.failed):
            culprit = self._recreated_callable(data, nearest.description)
        reason = culprit or reason_of(changes) or self._dropped_text(nearest, record, is_full)
        self._check_limits(reason)
        if self.warns and culprit:
            self._warner.count_recreation(culprit.partition("`: ")[0], culprit, FUNCTION_REMEDY, record.site)
        elif self.warns:  # a recursion ends by a number
            self._warner.count(changes, record.site, in_recursion=self._under_way > 0)
        return reason

    def _recreated_callable(self, data: SpecData, nearest: Description) -> str:
        """Why a callable of a call that looks like an earlier one is not the same; empty if none is."""
        for path, kind, value in details(data):
            entry = nearest.entries.get(path) if kind in (VALUE, FIELD) else None
            is_another = entry is not None and entry.is_another_object(value)
            if is_another and (text := _recreation_text(value, self.is_by_identity)):
                return f"`{path}`: {text}"
        return ""

    def _dropped_text(self, same: Record, record: Record, is_full: bool) -> str:
        trace = f"trace {same.number}, of the same arguments"
        if self.cache_size is None:
            return f"its caller is traced again, with the arguments of trace {same.number}"
        if same.failed:
            return f"{trace}, raised an exception"
        if same.number <= self._cleared_at:
            return f"clear_cache() has dropped {trace}"
        if same.epoch != record.epoch:
            return f"a class has been registered as a pytree node since {trace}"
        if record.first:
            return f"jax has dropped {trace}, as after jax.clear_caches()"
        if is_full:
            return f"the key of {trace}, was evicted: cache_size={self.cache_size} keeps the static keys used last"
        entries = same.description.entries.items()
        path = next((path for path, entry in entries if entry.compared_by == "equality"), "")
        return f"{path}: another one by its `==`" if path else f"the key of {trace}, was dropped with an object in it"

    def end(self, record: Record, failed: bool) -> None:
        with self._lock:
            self._under_way -= 1
            record.failed = failed
            self.live -= failed

    def _check_limits(self, reason: str) -> None:
        if forbidden.get() and self.cache_size is not None:
            raise RetraceError(f"`{self.name}` would be traced {_FORBIDDEN}, as trace {self.count + 1}: {reason}")
        if self.max_traces is not None and self.live >= self.max_traces:
            raise RetraceError(
                f"`{self.name}` would be traced once more than max_traces={self.max_traces} allows, because {reason}"
                if self.count
                else f"`{self.name}` would be traced, and max_traces={self.max_traces} allows none"
            )

    def compiling(self, data: SpecData, values: Sequence[Any]) -> Record | None:
        """The record of a call that jax compiles without tracing it, or None; explains a second executable."""
        description = Description(data, values, values)
        succeeded = (record for record in reversed(self.records) if not record.failed)
        record = next((one for one in succeeded if not count_differences(one.description, description)), None)
        if record is None or any(isinstance(value, Tracer) for value in values):  # under vmap it is another program
            return record
        if record.compiled == 0:  # traced by `lower`, or inside another trace
            record.description = description
            return record
        moves = min((moved_arrays(old, description) for old in (record.description, *record.executables)), key=len)
        reason = "; ".join(moves) or "jax has dropped its executable, as after jax.clear_caches()"
        if forbidden.get():
            where = f"{_FORBIDDEN}, for trace {record.number}"
            raise RetraceError(f"`{self.name}` would be compiled again {where}: {reason}")
        record.executables.append(description)
        if explaining():
            report_line(call_site(), f"{self.name}: compiled again for trace {record.number}, because {reason}")
        return record


def _recreation_text(value: Any, is_by_identity: bool = False) -> str:
    """Why a re-created callable is not the same as an earlier one; empty if unknown."""
    if not callable(value) or issubclass(type(value), type):  # `isinstance` asks a user's `__class__`
        return ""
    reason = "is compared by identity, since reuse_equal_functions=False" if is_by_identity else Proof(value).reason
    return f"{callable_text(value)} was re-created and {reason}" if reason else ""


_latest: weakref.WeakKeyDictionary[types.CodeType, tuple[int, weakref.ref[Any]]] = weakref.WeakKeyDictionary()
"""By code, how many functions of it were traced for the first time, and the last of them."""


def _first_reason(fun: Any, difference: str) -> tuple[str, int]:
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
    why = difference.removeprefix("``: ") or _recreation_text(fun) or gone
    return f"the first of function {count + 1} of this code: {why}", count + 1


histories: collections.deque[History] = collections.deque(maxlen=_KEPT)
"""Those of the latest functions, also of those that are gone."""


def history_of(call: _core.Call) -> History:
    """The history of a call's callable, which its first trace or load begins."""
    return call.cache.history or call.cache.begin_history(_new_history(call.function, call.options, call.cache))


def _new_history(fun: Any, options: Options, cache: _core.CallCache) -> History:
    code = attribute_of(fun, "__code__")
    name = attribute_of(unwrapped(fun) if isinstance(fun, functools.partial) else fun, "__name__")
    defined = None if code is None else (code.co_filename, code.co_firstlineno)
    history = History(
        name if isinstance(name, str) else type(fun).__name__,
        options.max_traces,
        defined,
        options.cache_size,
        is_by_identity=not options.reuse_equal_functions,
        warns=code not in jitted_by_equinox,
    )
    with contextlib.suppress(TypeError):  # an object without weak references
        history.function = weakref.ref(fun)
    history.first_reason, history.number_of_code = _first_reason(fun, cache.difference)
    histories.append(history)
    return history


def begin_trace(call: _core.Call, trace: _core.Trace, tracers: Sequence[Any]) -> Record:
    """Record a trace that begins, or refuse it; see `History.begin`."""
    history, described = history_of(call), trace.described
    record = Record(Description(described, trace.values, tracers), trace.first, trace.epoch)
    if record.description.configuration.get("jax_disable_jit"):  # the function runs, it is not traced
        return record
    refuse_static_trees(described)
    history.begin(record, trace.difference, trace.is_full, described)
    function = None if call.shape.has_callable else call.function
    record.static_arrays = arrays_in_statics(described, history.name, function)
    return record


def end_trace(record: Record, failed: bool) -> None:
    record.static_arrays = None
    history = record.history
    if history is not None and record.number > 0:
        history.end(record, failed)
