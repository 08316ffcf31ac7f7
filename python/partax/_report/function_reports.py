"""report: what each function has cost, from the records of its traces."""

from collections.abc import Iterator, Sequence
from typing import Any

from partax import _core
from partax._jax.programs import programs_in
from partax._pytree.call_site import site_text
from partax._report.captured_arrays import captured_constants
from partax._report.history import History, kept
from partax._report.report import FunctionReport, KeyReport, Report, TraceReport
from partax._report.snapshot import Record

_EFFECTS = {
    "Debug": "jax.debug.print or callback", "IO": "io_callback", "Read": "refs", "Write": "refs", "Accum": "refs",
}  # fmt: skip


def _effect_text(effect: Any) -> str:
    name = type(effect).__name__
    kind = name.removeprefix("Ordered").removesuffix("Effect")
    return ("ordered " if name.startswith("Ordered") else "") + _EFFECTS[kind] if kind in _EFFECTS else name


def _equations(jaxpr: Any) -> int:
    return len(jaxpr.eqns) + sum(_equations(inner) for equation in jaxpr.eqns for inner in programs_in(equation))


def program_of(target: Any, record: Record) -> Any:
    """The jaxpr of a trace, from jax's cache; None if it is not there."""
    avals = [part.aval for _, part in record.arrays()]
    if target is None or record.failed or any(aval is None for aval in avals):
        return None
    for arguments in (avals, [tuple(avals)]):  # of many arrays it takes one tuple
        try:
            return target.trace(*arguments).jaxpr
        except Exception:  # not cached: the target refuses to run outside of a call
            continue
    return None


def _trace_report(target: Any, record: Record, calls: int | None, fun: Any) -> TraceReport:
    program = program_of(target, record)
    effects = sorted(set(map(_effect_text, program.effects))) if program else []
    return TraceReport(
        record.number,
        site_text(record.site),
        record.reason,
        calls,
        record.seconds["trace"],
        record.seconds["lower"],
        record.seconds["compile"],
        record.compiled,
        record.failed,
        None if program is None else _equations(program),
        () if program is None else tuple(captured_constants(list(program.consts), fun)),
        None if program is None or record.compiled == 0 else not effects,
        ", ".join(effects),
    )


def _static_texts(records: list[Record]) -> Iterator[str]:
    """Of each record the static values in which it differs from the others."""
    statics = [
        [(path, part.key, part.text) for path, part in it.snapshot.pairs() if part.key[0] != "array"] for it in records
    ]
    of_all = set[Any].intersection(*map(set, statics)) if statics else set[Any]()
    for of_one in statics:
        texts = [f"{path}={text}" for path, key, text in of_one if (path, key, text) not in of_all]
        yield ", ".join(texts[:4]) + (", ..." if len(texts) > 4 else "")


def _history_report(history: History, cache: _core.CallCache | None) -> FunctionReport:
    records = {record.number: record for record in history.records}
    fun = history.function()
    grouped: list[tuple[int | None, Any, Sequence[tuple[Record, int | None]]]] = []  # a key's calls, target, traces
    for calls, target, log in () if cache is None else cache.entries():
        known: Sequence[tuple[Record, int | None]] = [(records.pop(it), n) for it, n in log if it in records]
        if len(log) == 1 and known and known[0][1] is None:
            known = [(known[0][0], calls)]
        if known:
            grouped.append((calls, target, known))
    for record in records.values():
        grouped.append((None, None, [(record, None)]))
    statics = _static_texts([traces[0][0] for _, _, traces in grouped])
    keys = tuple(
        KeyReport(text, calls, tuple(_trace_report(target, record, n, fun) for record, n in traces))
        for text, (calls, target, traces) in zip(statics, grouped, strict=True)
    )
    defined = "" if history.defined is None else site_text(history.defined)
    hits, misses = (None, None) if cache is None else cache.info()[2:4]
    return FunctionReport(history.name, defined, hits, misses, keys, tuple(history.loads))


def function_report(self: Any) -> FunctionReport:
    """The report of one filter_jit function: `JitFunction.report`."""
    history = self._cache.history
    if history is None:
        hits, misses = self._cache.info()[2:4]
        return FunctionReport(self.__name__, "", hits, misses, ())
    return _history_report(history, self._cache)


def report() -> Report:
    """What every filter_jit function has cost that has been traced; of those that are gone the latest 256.

    Example:
      >>> @partax.filter_jit
      ... def evaluate(x):
      ...     return x.mean()
      >>> _ = evaluate(jnp.ones(3))
      >>> "evaluate" in [function.name for function in partax.report().functions]
      True

    The seconds are jax's own, of `jax.monitoring`.

    Returns:
      A `Report`, which prints as a table for each function; `to_json()` gives it as data.
    """
    living = {cache.history: cache for cache in _core.caches() if cache.history is not None}
    gone = [history for history in kept() if (history.records or history.loads) and history not in living]
    reports = [_history_report(history, cache) for history, cache in living.items()]
    reports += [_history_report(history, None) for history in gone]
    return Report(tuple(sorted(reports, key=lambda function: -function.seconds)))
