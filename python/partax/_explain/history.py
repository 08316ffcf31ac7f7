"""All traces of a function: begun, ended, counted, limited and explained."""

import collections
import contextlib
import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax.core import Tracer

from partax import _core
from partax._explain.advice import FUNCTION_REMEDY, OBJECT_REMEDY, Warner
from partax._explain.description import Description, Entry
from partax._explain.differences import Comparison, change_at, moved_arrays
from partax._explain.explain import RetraceError, counters, explaining, forbidden, report_line
from partax._explain.recreated import first_reason, recreated_text
from partax._explain.results import LoadReport
from partax._families.equinox import jitted_by_equinox
from partax._functions.objects import attribute_of, unwrapped
from partax._jit.options import Options
from partax._jit.static_arrays import ArrayPlace, arrays_in_statics, refuse_static_trees
from partax._pytree.call_site import call_site
from partax._pytree.spec_data import FIELD, VALUE, SpecData, details

_KEPT = 256  # records of one function, and functions, that are kept
_COMPARED = 16  # records that a trace is compared with
_WORDED = 16  # differences that are looked at one by one
_SHOWN = 5  # of these in one line


class Record:
    """One trace."""

    def __init__(self, history: "History", number: int, description: Description, occasion: "Occasion"):
        self._history = weakref.ref(history)
        self.number = number  # counts the traces of its function, from 1; 0 where the function is not traced
        self.description = description
        self.first = occasion.first or number  # of the traces of its static key
        self.epoch = occasion.epoch
        self.site = call_site()
        self.reason = ""
        self.failed = False
        self.compiled = 0  # how often
        self.seconds = {"trace": 0.0, "lower": 0.0, "compile": 0.0}
        self.executables: list[Description] = []  # of the further ones
        self.static_arrays: list[list[ArrayPlace]] = []  # until the trace ends

    @property
    def array_paths(self) -> list[str]:
        return self.description.array_paths

    @property
    def history(self) -> "History | None":
        """What it is one of; None if that is gone."""
        return self._history()


class Occasion(NamedTuple):
    """What the native wrapper reports about a trace that begins."""

    first: int = 0  # the number of the first trace of its static key; 0 where it is that one
    is_full: bool = False  # whether the cache holds as many static keys as it may
    epoch: int = 0  # changes when keys are void since a class has been registered as a pytree node
    difference: str = ""  # what a re-created callable reads, if that makes its key another one than an earlier one
    data: SpecData = ((), (), ())


@dataclasses.dataclass(eq=False, repr=False)
class History:
    """All traces of one function, the latest ones as records, oldest first."""

    name: str
    defined: tuple[str, int] | None  # the file and line of its definition
    max_traces: int | None
    cache_size: int = 0
    by_identity: bool = False  # whether a re-created function is always another one
    nested: bool = False  # counts the traces of another one, which reports them
    warns: bool = True  # of what is traced for each value, or each time it is re-created
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

    def begin(self, description: Description, occasion: Occasion) -> Record:
        """Adds a record of a trace that depends on this, or raises a RetraceError if there are to be no more."""
        with self._lock:
            reason = self._explained(description, occasion)
            self._under_way += 1
            self.count += 1
            self.live += 1
            record = Record(self, self.count, description, occasion)
            record.reason = reason
            self.records.append(record)
            if len(self.records) > _KEPT:
                self.records.pop(0)
        if explaining() and not self.nested:
            because = "because " if record.number > 1 else ""
            report_line(record.site, f"{self.name}: trace {record.number}, {because}{reason}")
        return record

    def _explained(self, description: Description, occasion: Occasion) -> str:
        """Why a trace is made; checks the limits, and warns."""
        warns, site = self.warns and not self.nested, call_site()
        if not self.records:
            self._check_limits(self.first_reason)
            if warns:
                self._warner.count_function(self.first_reason, self.number_of_code, site)
            return self.first_reason
        of_key = [record for record in self.records if record.first == occasion.first] or self.records
        recent = reversed(of_key[-_COMPARED:])
        comparison = Comparison(description)
        nearest = min(recent, key=lambda record: comparison.distance(record.description))
        places = comparison.differences(nearest.description)
        changes = [change_at(place) for place in places[:_WORDED]]
        culprit = "" if occasion.first else occasion.difference
        if not occasion.first and not changes and not culprit and not nearest.failed:
            culprit = self._recreated_callable(occasion.data, nearest.description.entries())
        texts = [*map(str, changes[:_SHOWN])] + [f"{len(places) - _SHOWN} more"] * (len(places) > _SHOWN)
        reason = culprit or "; ".join(texts) or self._dropped_text(nearest, occasion)
        self._check_limits(reason)
        recreated = next((change for change in changes if change.is_recreated), None)
        if warns and culprit:
            self._warner.count_recreated(culprit.partition("`: ")[0], culprit, FUNCTION_REMEDY, site)
        elif warns and recreated is not None:
            self._warner.count_recreated(recreated.path, str(recreated), OBJECT_REMEDY, site)
        elif warns and not self._under_way and all(change.numbers is not None for change in changes):
            self._warner.count_numbers(changes, site)  # but in a recursion, which ends by a number
        return reason

    def _recreated_callable(self, data: SpecData, entries: dict[str, Entry]) -> str:
        """Why a callable of a call that looks like an earlier one is not the same; empty if none is."""
        for path, kind, value in details(data):
            if kind in (VALUE, FIELD) and path in entries and entries[path].is_another_object(value):
                text = recreated_text(value, self.by_identity)
                if text:
                    return f"`{path}`: {text}"
        return ""

    def _dropped_text(self, same: Record, occasion: Occasion) -> str:
        trace = f"trace {same.number}, of the same arguments"
        if self.nested:
            return f"its caller is traced again, with the arguments of trace {same.number}"
        if same.failed:
            return f"{trace}, raised an exception"
        if same.number <= self._cleared_at:
            return f"clear_cache() has dropped {trace}"
        if same.epoch != occasion.epoch:
            return f"a class has been registered as a pytree node since {trace}"
        if occasion.first:
            return f"jax has dropped {trace}, as after jax.clear_caches()"
        if occasion.is_full:
            return f"the key of {trace}, was evicted: cache_size={self.cache_size} keeps the static keys used last"
        entries = same.description.entries().items()
        path = next((path for path, entry in entries if entry.compared_by == "equality"), "")
        return f"{path}: another one by its `==`" if path else f"the key of {trace}, was dropped with an object in it"

    def end(self, record: Record, failed: bool) -> None:
        with self._lock:
            self._under_way -= 1
            record.failed = failed
            self.live -= failed

    def _check_limits(self, reason: str) -> None:
        for wrapper, counter in counters.get():
            if wrapper._cache.history is self:
                with counter._lock:
                    counter._check_limits(reason)
                    counter.count += 1
                    counter.live += 1
        if forbidden.get() and not self.nested:
            where = "inside partax.debug.forbid_tracing()"
            raise RetraceError(f"`{self.name}` would be traced {where}, as trace {self.count + 1}: {reason}")
        if self.max_traces is not None and self.live >= self.max_traces:
            raise RetraceError(
                f"`{self.name}` would be traced once more than max_traces={self.max_traces} allows, because {reason}"
                if self.count
                else f"`{self.name}` would be traced, and max_traces={self.max_traces} allows none"
            )

    def compiling(self, data: SpecData, values: Sequence[Any]) -> Record | None:
        """The record of a call that jax compiles without tracing it, or None; explains a second executable."""
        description = Description(data, values, values)
        comparison = Comparison(description)
        succeeded = (record for record in reversed(self.records) if not record.failed)
        record = next((record for record in succeeded if not comparison.distance(record.description)), None)
        if record is None or any(isinstance(value, Tracer) for value in values):  # under vmap it is another program
            return record
        if record.compiled == 0:  # traced by `lower`, or inside another trace
            record.description = description
            return record
        changes = min((moved_arrays(old, description) for old in (record.description, *record.executables)), key=len)
        reason = "; ".join(map(str, changes)) or "jax has dropped its executable, as after jax.clear_caches()"
        if forbidden.get():
            inside = "inside partax.debug.forbid_tracing()"
            raise RetraceError(f"`{self.name}` would be compiled again {inside}, for trace {record.number}: {reason}")
        record.executables.append(description)
        if explaining():
            report_line(call_site(), f"{self.name}: compiled again for trace {record.number}, because {reason}")
        return record


histories: collections.deque[History] = collections.deque(maxlen=_KEPT)
"""Those of the latest functions, also of those that are gone."""


def history_of(call: _core.CallUnderWay) -> History:
    """The history of a call's callable, which its first trace or load begins."""
    return call.cache.history or call.cache.begin_history(_new_history(call.function, call.options, call.cache))


def _new_history(fun: Any, options: Options, cache: _core.CallCache) -> History:
    code = attribute_of(fun, "__code__")
    name = attribute_of(unwrapped(fun) if isinstance(fun, functools.partial) else fun, "__name__")
    history = History(
        name if isinstance(name, str) else type(fun).__name__,
        None if code is None else (code.co_filename, code.co_firstlineno),
        options.max_traces,
        options.cache_size,
        by_identity=not options.reuse_equal_functions,
        warns=code not in jitted_by_equinox,
    )
    with contextlib.suppress(TypeError):  # an object without weak references
        history.function = weakref.ref(fun)
    history.first_reason, history.number_of_code = first_reason(fun, cache.difference)
    histories.append(history)
    return history


def begin_trace(call: _core.CallUnderWay, trace: _core.Trace, tracers: Sequence[Any]) -> Record:
    """Records a trace that begins, or refuses it; see `History.begin`."""
    history, described = history_of(call), trace.described
    description = Description(described, trace.values, tracers)
    occasion = Occasion(trace.first, trace.is_full, trace.epoch, trace.difference, described)
    if description.configuration.get("jax_disable_jit"):  # the function runs, it is not traced
        return Record(history, 0, description, occasion)
    refuse_static_trees(described)
    record = history.begin(description, occasion)
    function = None if call.shape.has_callable else call.function
    record.static_arrays = arrays_in_statics(described, history.name, function)
    return record


def end_trace(record: Record, failed: bool) -> None:
    record.static_arrays = []
    history = record.history
    if history is not None and record.number > 0:
        history.end(record, failed)
