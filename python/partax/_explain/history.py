"""All traces of a function: begun, ended, counted, limited and explained."""

import collections
import contextlib
import dataclasses
import functools
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jax.core import Tracer

from partax import _core
from partax._explain.description import Description
from partax._explain.differences import Difference, count_differences, differences, moved_arrays, reason_of
from partax._explain.explain import RetraceError, RetraceWarning, explaining, forbidden, report_line
from partax._explain.results import LoadReport
from partax._families.equinox import jitted_by_equinox
from partax._families.objects import attribute_of, unwrapped
from partax._functions.proof import Proof, callable_text
from partax._jit.options import Options
from partax._jit.static_arrays import ArrayPlace, arrays_in_statics, refuse_static_trees
from partax._pytree.call_site import call_site
from partax._pytree.spec_data import SpecData

_KEPT = 256  # records of one function, and functions, that are kept
_COMPARED = 16  # records that a trace is compared with
_KEPT_CHANGES = 16  # that one record keeps
_WARN_AT = 3  # traces that one number, function or object has caused
_FORBIDDEN = "inside partax.debug.forbid_tracing()"
_RECREATED = f", and traced {_WARN_AT} times so far; "
_FUNCTION_REMEDY = f"{_RECREATED}create it once and reuse it, or pass what it reads as an argument"
_OBJECT_REMEDY = f"{_RECREATED}keep one object, or give its class `__eq__` and `__hash__`"

_lock = threading.RLock()  # threads may trace one function at once


@dataclasses.dataclass(eq=False, repr=False)
class Record:
    description: Description
    first: int = 0  # the number of the first trace of its static key; 0 until it has its own, if it is the first
    epoch: int = 0  # changes when keys are void since a class has been registered as a pytree node
    difference: str = ""  # what a re-created callable reads, if that makes the key another one than an earlier one
    is_full: bool = False  # whether the cache holds as many static keys as it may
    number: int = 0  # counts the traces of its function, from 1; 0 if the function is not traced
    site: tuple[str, int] = ("", 0)
    reason: str = ""
    changes: Sequence[Difference] = ()  # from the most similar earlier one
    failed: bool = False
    compiled: int = 0  # how often
    seconds: dict[str, float] = dataclasses.field(default_factory=lambda: {"trace": 0.0, "lower": 0.0, "compile": 0.0})
    executables: list[Description] = dataclasses.field(default_factory=list[Description])  # of the further ones
    static_arrays: list[list[ArrayPlace]] | None = None  # until the trace ends
    history: "History | None" = None

    def end(self, failed: bool) -> None:
        self.failed, self.static_arrays = failed, None
        if self.history is not None:
            with _lock:
                self.history.under_way -= 1
                self.history.live -= failed


@dataclasses.dataclass(eq=False, repr=False)
class History:
    name: str
    max_traces: int | None
    options: Options | None = None  # of the wrapper; None if this counts the traces of another one, which reports them
    defined: tuple[str, int] | None = None  # the file and line of its definition
    warns: bool = False  # of what is traced for each value, or each time it is re-created
    function: Callable[[], Any] = lambda: None  # gives it if it lives
    first_reason: str = "the first"
    number_of_code: int = 1  # how many functions of the same code were traced before it, and itself
    records: list[Record] = dataclasses.field(default_factory=list)  # of the latest traces, oldest first
    count: int = 0  # of all traces
    live: int = 0  # since `clear_cache`, without those that raised
    loads: list[LoadReport] = dataclasses.field(default_factory=list)  # each instead of a trace
    _cleared_at: int = 0  # the last trace that `clear_cache` has dropped
    under_way: int = 0  # traces that have begun
    _causes: dict[str, set[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(set))  # by path

    def cleared(self) -> None:
        self._cleared_at = self.count
        self.live = 0

    def begin(self, record: Record) -> None:
        record.site = call_site()
        with _lock:
            record.reason = self._explain(record)
            self.under_way += 1
            self.count += 1
            self.live += 1
            record.number, record.history = self.count, self
            record.first = record.first or record.number
            self.records.append(record)
            del self.records[:-_KEPT]
        if explaining() and self.options is not None:
            because = "because " if record.number > 1 else ""
            report_line(record.site, f"{self.name}: trace {record.number}, {because}{record.reason}")

    def _explain(self, record: Record) -> str:
        if not self.records:
            self._check_limits(self.first_reason)
            is_recreated = " was re-created and " in self.first_reason  # and not only evicted
            if self.warns and is_recreated and self.number_of_code == _WARN_AT:
                text = f"`{self.name}`: {self.first_reason.partition(': ')[2]}{_FUNCTION_REMEDY}"
                warnings.warn_explicit(text, RetraceWarning, *record.site)
            return self.first_reason
        of_key = [earlier for earlier in self.records if earlier.first == record.first] or self.records
        recent = of_key[: -_COMPARED - 1 : -1]
        nearest = min(recent, key=lambda earlier: count_differences(earlier.description, record.description))
        changes = differences(nearest.description, record.description)
        record.changes = changes[:_KEPT_CHANGES]
        culprit = "" if record.first else record.difference
        if not (record.first or changes or culprit or nearest.failed):
            culprit = self._recreated_callable(nearest.description, record.description)
        reason = culprit or reason_of(changes) or self._dropped_text(nearest, record)
        self._check_limits(reason)
        if self.warns:
            self._warn(record.site, culprit, changes)
        return reason

    def _warn(self, site: tuple[str, int], culprit: str, changes: Sequence[Difference]) -> None:
        causes: list[tuple[str, Iterable[str], str]] = []  # path, values and text
        again = str(self.count), str(self.count + 1)
        recreated = next((change for change in changes if change.is_recreated), None)
        if culprit:
            causes.append((culprit.partition("`: ")[0], again, culprit + _FUNCTION_REMEDY))
        elif recreated is not None:
            causes.append((recreated.path, again, recreated.text + _OBJECT_REMEDY))
        elif self.under_way == 0 and all(change.is_number for change in changes):  # a recursion ends by a number
            for change in changes:
                what = f"values of the static Python number `{change.path}` are a trace of `{self.name}` each"
                values = (entry.value_text for entry in change[1:] if entry is not None)
                causes.append((change.path, values, f"{_WARN_AT} {what}; {change.advice}"))
        for path, values, text in causes:
            before = len(self._causes[path])
            self._causes[path].update(values)
            if before < _WARN_AT <= len(self._causes[path]):
                warnings.warn_explicit(text, RetraceWarning, *site)

    def _recreated_callable(self, old: Description, new: Description) -> str:
        for path, entry in new.entries.items():
            before = old.entries.get(path)
            is_another = before is not None and before.function != entry.function
            value = entry.function() if is_another and isinstance(entry.function, weakref.ref) else None
            if text := _recreation_text(value, self.options is not None and not self.options.reuse_equal_functions):
                return f"`{path}`: {text}"
        return ""

    def _dropped_text(self, same: Record, record: Record) -> str:
        trace = f"trace {same.number}, of the same arguments"
        if self.options is None:
            return f"its caller is traced again, with the arguments of trace {same.number}"
        if same.failed:
            return f"{trace}, raised an exception"
        if same.number <= self._cleared_at:
            return "clear_cache() has dropped the earlier traces"
        if same.epoch != record.epoch:
            return f"a class has been registered as a pytree node since {trace}"
        if record.first:
            return f"jax has dropped {trace}, as after jax.clear_caches()"
        if record.is_full:
            return f"the key of {trace}, was evicted: cache_size={self.options.cache_size} keeps those used last"
        for path, entry in same.description.entries.items():
            if entry.compared_by == "equality":
                return f"{path}: another one by its `==`"
        return f"the key of {trace}, was dropped with an object in it"

    def _check_limits(self, reason: str) -> None:
        if forbidden.get() and self.options is not None:
            raise RetraceError(f"`{self.name}` would be traced {_FORBIDDEN}, as trace {self.count + 1}: {reason}")
        if self.max_traces is not None and self.live >= self.max_traces:
            limit = f"max_traces={self.max_traces} allows"
            text = f" once more than {limit}, because {reason}" if self.count else f", and {limit} none"
            raise RetraceError(f"`{self.name}` would be traced{text}")

    def compiling(self, data: SpecData, values: Sequence[Any]) -> Record | None:
        """The record of a call that jax compiles without tracing it, or None; explains a second executable."""
        description = Description([data], values, values)
        succeeded = (record for record in reversed(self.records) if not record.failed)
        record = next((one for one in succeeded if not count_differences(one.description, description)), None)
        if record is None or any(isinstance(value, Tracer) for value in values):  # under vmap it is another program
            return record
        if record.compiled == 0:  # traced by `lower`, or inside another trace
            record.description = description
            return record
        moves = min((moved_arrays(old, description) for old in (record.description, *record.executables)), key=len)
        reason = "; ".join(moves) or "jax has dropped its executable, as after jax.clear_caches()"
        trace = f"for trace {record.number}"
        if forbidden.get():
            raise RetraceError(f"`{self.name}` would be compiled again {_FORBIDDEN}, {trace}: {reason}")
        record.executables.append(description)
        if explaining():
            report_line(call_site(), f"{self.name}: compiled again {trace}, because {reason}")
        return record


def _recreation_text(value: Any, is_by_identity: bool = False) -> str:
    if not callable(value) or issubclass(type(value), type):  # `isinstance` asks a user's `__class__`
        return ""
    reason = "is compared by identity, since reuse_equal_functions=False" if is_by_identity else Proof(value).reason
    return f"{callable_text(value)} was re-created and {reason}" if reason else ""


# By code, how many functions of it were traced for the first time, and the last of them.
_latest: weakref.WeakKeyDictionary[types.CodeType, tuple[int, weakref.ref[Any]]] = weakref.WeakKeyDictionary()


def _first_reason(fun: Any, difference: str) -> tuple[str, int]:
    inner = unwrapped(fun)
    if not isinstance(inner, types.FunctionType):
        return "the first", 1
    count, latest = _latest.get(inner.__code__, (0, None))
    is_same = latest is not None and latest() is inner and not difference  # with other options, or after `clear_cache`
    if not is_same:
        _latest[inner.__code__] = count + 1, weakref.ref(inner)
    if is_same or count == 0:
        return "the first", 1
    gone = f"{callable_text(fun)} was re-created, and the programs of the earlier one are gone"
    why = difference.removeprefix("``: ") or _recreation_text(fun) or gone
    return f"the first of function {count + 1} of this code: {why}", count + 1


histories: collections.deque[History] = collections.deque(maxlen=_KEPT)  # also of functions that are gone


def history_of(call: _core.Call) -> History:
    return call.cache.history or call.cache.begin_history(_new_history(call.function, call.options, call.cache))


def _new_history(fun: Any, options: Options, cache: _core.CallCache) -> History:
    code = attribute_of(fun, "__code__")
    name = attribute_of(unwrapped(fun) if isinstance(fun, functools.partial) else fun, "__name__")
    name = name if isinstance(name, str) else type(fun).__name__
    defined = None if code is None else (code.co_filename, code.co_firstlineno)
    history = History(name, options.max_traces, options, defined, warns=code not in jitted_by_equinox)
    with contextlib.suppress(TypeError):  # an object without weak references
        history.function = weakref.ref(fun)
    history.first_reason, history.number_of_code = _first_reason(fun, cache.difference)
    histories.append(history)
    return history


def begin_trace(call: _core.Call, trace: _core.Trace, tracers: Sequence[Any]) -> Record:
    history, (described, values) = history_of(call), call.describe()
    description = Description([described], values, tracers)
    record = Record(description, *trace.key_state)
    if not description.configuration.get("jax_disable_jit"):  # with it, the function runs and is not traced
        refuse_static_trees(described)
        history.begin(record)
        function = None if call.shape.has_callable else call.function
        record.static_arrays = arrays_in_statics(described, history.name, function)
    return record
