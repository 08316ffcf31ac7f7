"""The record of each trace of a function: numbers it, finds what it differs in from earlier ones, and limits them."""

import contextlib
import contextvars
import functools
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import jax

from partax import _core
from partax._explain.differences import (
    Difference,
    changed_callable,
    changed_function,
    differences,
    distance,
    places,
    unproven_function,
)
from partax._explain.opaque_arrays import warn_of_arrays
from partax._explain.snapshot import Part, Snapshot, Snapshotter
from partax._explain.switch import RetraceError, RetraceWarning, call_site, explaining, report_line, site_text
from partax._statics.proofs import read
from partax._tree.described import NODE, Data, Detail, details

_KEPT = 256  # records of one function that are kept in full
_COMPARED = 8  # of these, how many a trace is compared with while nothing is explained
_DIGESTS = 1 << 16
_SHOWN = 5  # differences in one line
_WARN_AFTER = 5  # traces that one static number has caused

forbidden: contextvars.ContextVar[bool] = contextvars.ContextVar("partax_no_retrace", default=False)
_limited: contextvars.ContextVar[tuple[tuple[Any, "History"], ...]] = contextvars.ContextVar(
    "partax_limited", default=()
)


@contextlib.contextmanager
def limited(wrapper: Any, counter: "History") -> Generator[None]:
    """Has the traces of a filter_jit wrapper counted, and limited, by another history too."""
    token = _limited.set((*_limited.get(), (wrapper, counter)))
    try:
        yield
    finally:
        _limited.reset(token)


class Record:
    """One trace: what it depended on, and what it cost.

    Attributes:
      number: counts the traces of its function, from 1.
      site: the file and line of the call.
      snapshot: what it depended on.
      reason: why it was made.
      failed: whether it raised; `error` has the type of the exception's name then.
      seconds: by stage: `trace`, `lower`, `compile`.
      compiled: how often it was compiled.
      measured: whether jax has told how long the trace took.
    """

    __slots__ = (
        "__weakref__",
        "_history",
        "compiled",
        "epoch",
        "failed",
        "measured",
        "number",
        "places",
        "reason",
        "seconds",
        "site",
        "snapshot",
        "started",
        "tracked",
    )

    def __init__(self, history: "History", number: int, snapshot: Snapshot, epoch: int):
        self._history = weakref.ref(history)
        self.number = number
        self.snapshot = snapshot
        self.epoch = epoch
        self.site = call_site()
        self.reason = ""
        self.failed = False
        self.measured = False
        self.tracked = True
        self.compiled = 0
        self.seconds = {"trace": 0.0, "lower": 0.0, "compile": 0.0}
        self.places: list[Snapshot] = []  # of its further executables
        self.started = time.perf_counter()

    @property
    def history(self) -> "History | None":
        return self._history()


class History:
    """All traces of one function.

    Attributes:
      name: the function's name.
      function: gives the function if it lives.
      first: the reason of the first trace.
      defined: the file and line of its definition, or None.
      records: the latest ones, oldest first.
      count: how many traces there have been.
      live: how many of them since `clear_cache`, without those that raised.
    """

    def __init__(
        self,
        name: str,
        defined: tuple[str, int] | None,
        max_traces: int | None,
        cache_size: int,
        by_structure: bool,
        nested: bool = False,
    ):
        self.name = name
        self.defined = defined
        self.max_traces = max_traces
        self.cache_size = cache_size
        self.by_structure = by_structure
        self.nested = nested  # counts the traces of another one, which reports them
        self.function: Callable[[], Any] = lambda: None
        self.first = "the first"
        self.records: list[Record] = []
        self.count = 0
        self.live = 0
        self._lock = threading.RLock()  # threads may trace one function at once
        self._cleared_at = 0
        self._digests: dict[int, int] = {}
        self._values: dict[str, set[str]] = {}  # of numbers, by path, that have caused traces
        self._warned: set[str] = set()

    def cleared(self) -> None:
        """clear_cache has dropped every key."""
        self._cleared_at = self.count
        self.live = 0

    def take(self, described: Iterable[Detail], values: Sequence[Any], traced: Sequence[Any]) -> Snapshot:
        """The snapshot of a call."""
        like = self.records[-1].snapshot if self.records else None
        verbose = explaining() or self.max_traces is not None or forbidden.get()
        return Snapshotter(self.by_structure, verbose).snapshot(described, values, traced, like)

    def nearest(self, snapshot: Snapshot) -> Record:
        """The record that differs least; the latest one of those."""
        recent = self.records if explaining() or self.max_traces is not None else self.records[-_COMPARED:]
        return min(reversed(recent), key=lambda record: distance(record.snapshot, snapshot))

    def begin(self, snapshot: Snapshot, new_key: bool, full: bool, epoch: int, difference: str = "") -> Record:
        """Adds a record, unless the trace is refused.

        Args:
          snapshot: what the trace depends on.
          new_key: whether it is the first trace of its static key.
          full: whether the cache holds as many static keys as it may.
          epoch: changes when keys are void since a class has been registered as a pytree node.
          difference: what a callable made anew reads, if that makes its key another one than an earlier one.

        Returns:
          The record.

        Raises:
          RetraceError: there are to be no more traces.
        """
        with self._lock:
            found = self._compare(snapshot)
            caused = self._count_number(found)
            reason = self._reason(snapshot, found, new_key, full, epoch, difference)
            self._check_limits(reason)
            if caused is not None and not self.nested:
                self._warn(caused, call_site())
            self.count += 1
            self.live += 1
            record = Record(self, self.count, snapshot, epoch)
            record.reason = reason
            self.records.append(record)
            if len(self.records) > _KEPT:
                self.records.pop(0)
        if explaining() and not self.nested:
            because = f", because {reason}" if record.number > 1 else f", {reason}"
            report_line(f"{site_text(record.site)} {self.name}: trace {record.number}{because}")
        return record

    def end(self, record: Record, failed: bool) -> None:
        """The trace has ended."""
        if not record.measured:
            record.seconds["trace"] = time.perf_counter() - record.started
        with self._lock:
            if failed:
                record.failed = True
                self.live -= 1
                earlier = [known for known in self.records if known.failed]
                for known in earlier[:-_COMPARED]:
                    self.records.remove(known)
                return
            digest = record.snapshot.digest()
            if digest is not None and len(self._digests) < _DIGESTS:
                self._digests[digest] = record.number

    def _compare(self, snapshot: Snapshot) -> tuple[Record, list[Difference]] | None:
        if not self.records:
            return None
        nearest = self.nearest(snapshot)
        return nearest, list(differences(nearest.snapshot, snapshot))

    def _count_number(self, found: tuple[Record, list[Difference]] | None) -> str | None:
        """Counts a trace that only a static number has caused; its path if that is one too many."""
        if found is None or len(found[1]) != 1 or found[1][0].number is None:
            return None
        path = found[1][0].path
        values = self._values.setdefault(path, set())
        if len(values) < _KEPT:
            values.add(found[1][0].number)
        return path if len(values) >= _WARN_AFTER and path not in self._warned else None

    def _warn(self, path: str, site: tuple[str, int]) -> None:
        self._warned.add(path)
        warnings.warn_explicit(
            f"{len(self._values[path])} values of the static Python number `{path}` have caused a trace of "
            f"`{self.name}` each; {self._advice(path)}",
            RetraceWarning,
            *site,
        )

    @staticmethod
    def _advice(path: str) -> str:
        name = path.rsplit(".", 1)[-1]
        return f"pass jnp.asarray({name}), or trace it"

    def _reason(
        self,
        snapshot: Snapshot,
        found: tuple[Record, list[Difference]] | None,
        new_key: bool,
        full: bool,
        epoch: int,
        difference: str,
    ) -> str:
        if found is None:
            return self.first
        nearest, changes = found
        if not changes and new_key and difference:
            return difference
        digest = snapshot.digest()
        again = self._digests.get(digest) if digest is not None and changes else None
        if not changes or again is not None:
            return self._dropped(nearest if not changes else None, again or nearest.number, new_key, full, epoch)
        texts = [self._with_advice(change) for change in changes[:_SHOWN]]
        more = [f"{len(changes) - _SHOWN} more"] if len(changes) > _SHOWN else []
        return "; ".join(texts + more)

    def _with_advice(self, change: Difference) -> str:
        if change.number is None:
            return str(change)
        traces = len(self._values.get(change.path, "1")) + 1
        return f"{change} ({traces} traces so far: {self._advice(change.path)})"

    def _dropped(self, same: Record | None, number: int, new_key: bool, full: bool, epoch: int) -> str:
        """Why a trace that has been made before is made again."""
        if self.nested:
            return f"it is called again with the arguments of trace {number}, as when what calls it is traced anew"
        if same is not None and same.failed:
            return f"trace {number}, of the same arguments, raised an exception"
        if number <= self._cleared_at:
            return f"clear_cache() has dropped trace {number}, of the same arguments"
        if same is not None and same.epoch != epoch:
            return f"a class has been registered as a pytree node since trace {number}, of the same arguments"
        if new_key and full:
            return (
                f"the key of trace {number}, of the same arguments, was evicted: cache_size={self.cache_size} keeps "
                "the static keys used last"
            )
        if new_key:
            return (
                f"a static value compares unequal to that of trace {number}, though its text, type and hash are the "
                "same (compared: structure, static values, dtypes, shapes, jax configuration)"
            )
        return (
            f"jax holds trace {number}, of the same arguments, no more, as after jax.clear_caches() (compared: "
            "structure, static values, dtypes, shapes, jax configuration)"
        )

    def _check_limits(self, reason: str) -> None:
        for wrapper, counter in _limited.get():
            if wrapper._cache.history is self:
                with counter._lock:
                    counter._check_limits(reason)
                    counter.count += 1
                    counter.live += 1
        if forbidden.get() and not self.nested:
            raise RetraceError(
                f"`{self.name}` would be traced inside partax.debug.no_retrace(), as trace {self.count + 1}: {reason}"
            )
        if self.max_traces is not None and self.live >= self.max_traces:
            raise RetraceError(
                f"`{self.name}` would be traced once more than max_traces={self.max_traces} allows, because {reason}"
                if self.count
                else f"`{self.name}` would be traced, and max_traces={self.max_traces} allows none"
            )

    def traced_like(self, snapshot: Snapshot) -> Record | None:
        """The latest record of a trace that depended on the same."""
        for record in reversed(self.records):
            if not record.failed and distance(record.snapshot, snapshot) == 0:
                return record
        return None

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
            raise RetraceError(
                f"`{self.name}` would be compiled again inside partax.debug.no_retrace(), for trace {record.number}: "
                f"{reason}"
            )
        record.places.append(snapshot)
        if explaining():
            report_line(
                f"{site_text(call_site())} {self.name}: compiled again for trace {record.number}, because {reason}"
            )
        return record


_all: list[History] | None = None


def keep_all() -> None:
    """Keeps the history of each function from now on, also of those that are gone by the time of a report."""
    global _all
    _all = []


def kept() -> list[History]:
    """The histories that `keep_all` has kept."""
    return _all or []


def explains_now() -> bool:
    """Whether jax works for a target of partax now, whose traces have their own explanation."""
    return _core.call_under_way() is not None


_flatten_costs: weakref.WeakKeyDictionary[type, float] = weakref.WeakKeyDictionary()


def flatten_microseconds(kind: type) -> float:
    """What the registered flatten function of a node type took when it was first seen in a trace."""
    return _flatten_costs.get(kind, 0.0)


def _time_flatten_functions(described: list[Detail], arguments: tuple[Any, ...]) -> None:
    kinds = {value[1] for _, kind, value in described if kind == NODE and value[0] == "registered"}
    for kind in [kind for kind in kinds if kind not in _flatten_costs]:  # not by iterating over what others may add to
        nodes = jax.tree.leaves(arguments, is_leaf=lambda node, kind=kind: type(node) is kind)
        node = next((node for node in nodes if type(node) is kind), None)
        costs: list[float] = []
        for _ in range(3 if node is not None else 0):
            start = time.perf_counter()
            jax.tree_util.default_registry.flatten_one_level(node)
            costs.append(time.perf_counter() - start)
        _flatten_costs[kind] = 1e6 * min(costs, default=0.0)


_Known = dict[tuple[type, types.CodeType | None], tuple[int, Part, Part]]

_functions_of: weakref.WeakKeyDictionary[types.CodeType, _Known] = weakref.WeakKeyDictionary()
_parts_of: weakref.WeakKeyDictionary[types.FunctionType, Part] = weakref.WeakKeyDictionary()


def _innermost(fun: Any) -> Any:
    """The function inside of partials, methods and wrappers."""
    for _ in range(100):
        inner = fun.func if isinstance(fun, functools.partial) else read(fun, "__wrapped__")
        inner = read(fun, "__func__") if inner is None else inner
        if not callable(inner):
            break
        fun = inner
    return fun


def _first_reason(fun: Any, by_structure: bool, difference: str) -> str:
    """Why a function is traced for the first time: it may be one that is made anew in each call."""
    inner = _innermost(fun)
    if not isinstance(inner, types.FunctionType):
        return "the first"
    snapshotter = Snapshotter(by_structure, explaining())
    part = snapshotter.value(inner)
    outer = part if fun is inner else snapshotter.value(fun)
    replaced, _parts_of[inner] = _parts_of.get(inner), part
    if replaced is not None and not replaced.items[0][1].same(part.items[0][1]):
        return f"the first since {inner.__name__}.__code__ was replaced: {changed_function(replaced, part)}"
    known = _functions_of.setdefault(inner.__code__, {})
    form = (type(fun), read(fun, "__code__"))
    count, *latest = known.get(form, (0,))
    if latest and latest[1].same(outer):
        if not difference:
            return "the first"
        change = unproven_function(part, difference)
        known[form] = (count + 1, part, outer)
        return f"the first of function {count + 1} of this code: {change}"
    known[form] = (count + 1, part, outer)
    if not latest:
        return "the first"
    change = changed_callable(latest[1], outer) if latest[0].same(part) else changed_function(latest[0], part)
    return f"the first of function {count + 1} of this code: {change}"


def new_history(fun: Any, options: Any, difference: str) -> History:
    """Begins the history of a callable. Called by the native wrapper.

    Args:
      fun: the callable.
      options: of its wrapper.
      difference: what an earlier callable of the same code read otherwise, or what of that is not proven; else empty.

    Returns:
      The history.
    """
    code = read(fun, "__code__")
    name = read(_innermost(fun) if isinstance(fun, functools.partial) else fun, "__name__")
    history = History(
        name if isinstance(name, str) else type(fun).__name__,
        None if code is None else (code.co_filename, code.co_firstlineno),
        options.max_traces,
        options.cache_size,
        getattr(options, "callables", "identity") == "structure",
    )
    with contextlib.suppress(TypeError):  # an object without weak references
        history.function = weakref.ref(fun)
    history.first = _first_reason(fun, history.by_structure, difference)
    if _all is not None:
        _all.append(history)
    return history


def begin_trace(
    history: History,
    described: Data,
    arguments: tuple[Any, ...],
    values: tuple[Any, ...],
    tracers: tuple[Any, ...],
    new_key: bool,
    full: bool,
    epoch: int,
    difference: str,
) -> Record:
    """Records a trace that begins. Called by the native wrapper; see `History.begin`."""
    found = list(details(described))
    warn_of_arrays(found)
    snapshot = history.take(found, values, tracers)
    _time_flatten_functions(found, arguments)
    if snapshot.configuration.get("jax_disable_jit"):  # the function runs, it is not traced
        record = Record(history, 0, snapshot, epoch)
        record.tracked = False
        return record
    return history.begin(snapshot, new_key, full, epoch, difference)


def end_trace(record: Record, failed: bool) -> None:
    """Called by the native wrapper when a trace has ended or failed."""
    history = record.history
    if history is not None and record.tracked:
        history.end(record, failed)
