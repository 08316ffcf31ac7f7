"""All traces of a function: begun, ended, counted, limited and reported."""

import collections
import contextlib
import dataclasses
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from partax import _core
from partax._families.equinox import jitted_by_equinox
from partax._functions.objects import read, unwrapped
from partax._jit.options import value_parameters
from partax._pytree.call_site import call_site
from partax._pytree.spec_data import FIELD, VALUE, Detail, SpecData, details
from partax._report.explain import RetraceError, counters, explaining, forbidden, report_line
from partax._report.part import ValueParts
from partax._report.reasons import Occasion, Reasons
from partax._report.recreated import first_reason, warn_of_function
from partax._report.report import LoadReport
from partax._report.snapshot import Record, Snapshot, differences, distance, places, take_snapshot
from partax._report.static_arrays import arrays_in_statics, refuse_static_trees

_PLAIN = {type(None), bool, int, float, complex, str, bytes}
_KEPT = 256  # records of one function, and functions, that are kept in full
_COMPARED = 8  # of these, how many a trace is compared with while nothing is explained


@dataclasses.dataclass(eq=False, repr=False)
class History:
    """All traces of one function, the latest ones as records, oldest first."""

    name: str
    defined: tuple[str, int] | None  # the file and line of its definition
    max_traces: int | None
    cache_size: int
    by_structure: bool
    nested: bool = False  # counts the traces of another one, which reports them
    warns: bool = True  # of a static number that is a trace for each value
    function: Callable[[], Any] = lambda: None  # gives it if it lives
    records: list[Record] = dataclasses.field(default_factory=list)
    count: int = 0  # of all traces
    live: int = 0  # since `clear_cache`, without those that raised
    loads: list[LoadReport] = dataclasses.field(default_factory=list)  # each in the place of a trace
    number_of_code: int = 1  # how many functions of the same code were traced before it, and itself
    _under_way: int = 0  # traces that have begun
    _lock: Any = dataclasses.field(default_factory=threading.RLock)  # threads may trace one function at once

    def __post_init__(self) -> None:
        self.reasons = Reasons(self.name, self.cache_size, self.nested)

    def cleared(self) -> None:
        self.reasons.cleared_at = self.count
        self.live = 0

    def take(self, described: Iterable[Detail], values: Sequence[Any], traced: Sequence[Any]) -> Snapshot:
        latest = self.records[-1:]  # at once: another thread may remove one meanwhile
        like = latest[0].snapshot if latest else None
        verbose = explaining() or self.max_traces is not None or forbidden.get()
        return take_snapshot(described, values, traced, ValueParts(self.by_structure, verbose), like)

    def nearest(self, snapshot: Snapshot) -> Record:
        """The record that differs least; the latest one of those."""
        recent = self.records if explaining() or self.max_traces is not None else self.records[-_COMPARED:]
        return min(reversed(recent), key=lambda record: distance(record.snapshot, snapshot))

    def begin(self, snapshot: Snapshot, occasion: Occasion) -> Record:
        """Adds a record of a trace that depends on this, or raises a RetraceError if there are to be no more."""
        with self._lock:
            nearest = self.nearest(snapshot) if self.records else None
            changes = [] if nearest is None else list(differences(nearest.snapshot, snapshot))
            caused = None if self._under_way else self.reasons.count_number(changes)  # recursion ends by a number
            reason = self.reasons.reason(snapshot, nearest, changes, occasion)
            self.reasons.recreations.keep(occasion.statics)
            self._check_limits(reason)
            if self.warns and not self.nested:
                if caused is not None:
                    self.reasons.warn(caused, occasion, call_site())
                self.reasons.recreations.warn(call_site())
                if nearest is None:
                    warn_of_function(self.name, reason, self.number_of_code, call_site())
            self._under_way += 1
            self.count += 1
            self.live += 1
            record = Record(self, self.count, snapshot, occasion.epoch)
            record.reason = reason
            self.records.append(record)
            if len(self.records) > _KEPT:
                self.records.pop(0)
        if explaining() and not self.nested:
            because = "because " if record.number > 1 else ""
            report_line(record.site, f"{self.name}: trace {record.number}, {because}{reason}")
        return record

    def end(self, record: Record, failed: bool) -> None:
        if not record.measured:
            record.seconds["trace"] = time.perf_counter() - record.started
        with self._lock:
            self._under_way -= 1
            record.failed = failed
            if not failed:
                self.reasons.keep(record)
                return
            self.live -= 1
            for known in [it for it in self.records if it.failed][:-_COMPARED]:
                self.records.remove(known)

    def _check_limits(self, reason: str) -> None:
        for wrapper, counter in counters.get():
            if wrapper._cache.history is self:
                with counter._lock:
                    counter._check_limits(reason)
                    counter.count += 1
                    counter.live += 1
        if forbidden.get() and not self.nested:
            raise RetraceError(
                f"`{self.name}` would be traced inside partax.debug.forbid_tracing(), as trace {self.count + 1}: {reason}"
            )
        if self.max_traces is not None and self.live >= self.max_traces:
            raise RetraceError(
                f"`{self.name}` would be traced once more than max_traces={self.max_traces} allows, because {reason}"
                if self.count
                else f"`{self.name}` would be traced, and max_traces={self.max_traces} allows none"
            )

    def traced_like(self, snapshot: Snapshot) -> Record | None:
        alike = (it for it in reversed(self.records) if not it.failed and distance(it.snapshot, snapshot) == 0)
        return next(alike, None)  # the latest

    def compiling(self, snapshot: Snapshot) -> Record | None:
        """The record of a call that jax compiles without tracing it, or None; reports a second executable."""
        record = self.traced_like(snapshot)
        if record is None:
            return None
        if record.compiled == 0:  # traced by `lower`, or inside another trace
            record.snapshot = snapshot
            return record
        moved = [list(places(known, snapshot)) for known in (record.snapshot, *record.places)]
        reason = "; ".join(map(str, min(moved, key=len))) or (
            "jax holds its executable no more, as after jax.clear_caches() (compared: where arrays are, and all that a "
            "trace depends on)"
        )
        if forbidden.get():
            inside = "inside partax.debug.forbid_tracing()"
            raise RetraceError(f"`{self.name}` would be compiled again {inside}, for trace {record.number}: {reason}")
        record.places.append(snapshot)
        if explaining():
            report_line(call_site(), f"{self.name}: compiled again for trace {record.number}, because {reason}")
        return record


_all: collections.deque[History] = collections.deque(maxlen=_KEPT)


def keep_all() -> None:
    """Keeps the history of each function from now on, and not only the latest ones that are gone."""
    global _all
    _all = collections.deque(_all)


def kept() -> list[History]:
    """The histories of functions, also of those that are gone."""
    return list(_all)


def new_history(fun: Any, options: Any, difference: str) -> History:
    """Begins the history of a callable. Called by the native wrapper. `difference` is what an earlier callable of the
    same code read otherwise, or what of that is not proven; else empty.
    """
    code = read(fun, "__code__")
    name = read(unwrapped(fun) if isinstance(fun, functools.partial) else fun, "__name__")
    history = History(
        name if isinstance(name, str) else type(fun).__name__,
        None if code is None else (code.co_filename, code.co_firstlineno),
        options.max_traces,
        options.cache_size,
        getattr(options, "reuse_equal_functions", False),
        warns=code not in jitted_by_equinox,
    )
    with contextlib.suppress(TypeError):  # an object without weak references
        history.function = weakref.ref(fun)
    history.reasons.first, history.number_of_code = first_reason(fun, difference)
    _all.append(history)
    return history


def begin_trace(
    history: History,
    function: Any,
    described: SpecData,
    values: tuple[Any, ...],
    tracers: tuple[Any, ...],
    new_key: bool,
    full: bool,
    epoch: int,
    difference: str,
) -> Record:
    """Records a trace of `function` that begins. Called by the native wrapper; see `History.begin`."""
    parts = list(details(described))
    snapshot = history.take(parts, values, tracers)
    if snapshot.configuration.get("jax_disable_jit"):  # the function runs, it is not traced
        record = Record(history, 0, snapshot, epoch)
        record.tracked = False
        return record
    refuse_static_trees(parts)
    fields = [path for path, kind, _ in parts if kind == FIELD]
    call = _core.call_shape()
    names = set(value_parameters(call))
    statics = [(path, value) for path, kind, value in parts if kind in (VALUE, FIELD) and type(value) not in _PLAIN]
    record = history.begin(snapshot, Occasion(new_key, full, epoch, difference, fields, names, statics))
    record.static_arrays = arrays_in_statics(parts, history.name, None if call[-1] else function)
    return record


def end_trace(record: Record, failed: bool) -> None:
    record.static_arrays = []
    history = record.history
    if history is not None and record.tracked:
        history.end(record, failed)
