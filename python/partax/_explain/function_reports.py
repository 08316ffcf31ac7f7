"""report: what each function has cost, from the records of its traces."""

from collections.abc import Iterator
from typing import Any

from partax import _core
from partax._explain.history import History, Record, histories
from partax._explain.results import FunctionReport, KeyReport, Report, TraceReport
from partax._pytree.call_site import site_text

_SHOWN = 4  # static values of one key


def _static_texts(records: list[Record]) -> Iterator[str]:
    """The static values of each key that not all of them have."""
    entries = [record.description.entries.items() for record in records]
    statics = [[f"{path}={entry.value_text}" for path, entry in of_one if entry.label] for of_one in entries]
    of_all = set.intersection(*map(set, statics)) if statics else set[str]()
    for texts in ([text for text in of_one if text not in of_all] for of_one in statics):
        yield ", ".join(texts[:_SHOWN]) + (", ..." if len(texts) > _SHOWN else "")


def _history_report(history: History, cache: _core.CallCache | None) -> FunctionReport:
    records = {record.number: record for record in history.records}
    keys: list[tuple[int | None, list[tuple[Record, int | None]]]] = []  # a key's calls, its traces with theirs
    for calls, _, log in () if cache is None else cache.entries():
        if traces := [(records.pop(number), of_trace) for number, of_trace in log if number in records]:
            is_only = len(log) == 1 and traces[0][1] is None
            keys.append((calls, [(traces[0][0], calls)] if is_only else traces))
    keys.extend((None, [(record, None)]) for record in records.values())
    texts = _static_texts([traces[0][0] for _, traces in keys])
    reports = tuple(
        KeyReport(text, calls, tuple(_trace_report(*trace) for trace in traces))
        for text, (calls, traces) in zip(texts, keys, strict=True)
    )
    defined = "" if history.defined is None else site_text(history.defined)
    hits, misses = (None, None) if cache is None else cache.info()[2:4]
    return FunctionReport(history.name, defined, hits, misses, reports, tuple(history.loads))


def _trace_report(record: Record, calls: int | None) -> TraceReport:
    seconds, site = record.seconds.values(), site_text(record.site)  # to trace, lower and compile
    return TraceReport(record.number, site, record.reason, calls, *seconds, record.compiled, record.failed)


def function_report(self: Any) -> FunctionReport:
    return _history_report(self._cache.history or History(self.__name__, None), self._cache)


def report() -> Report:
    """Return the cost of every `filter_jit` function that has been traced; of those that are deleted, the latest 256.

    Example:
      >>> _ = partax.filter_jit(jnp.mean)(jnp.ones(3))
      >>> "mean" in [function.name for function in partax.report().functions]
      True

    Returns:
      A `partax.reports.Report`, which prints as a table for each function; `to_json()` returns it as data. The seconds
      come from `jax.monitoring`.

    See Also:
      The guide "When does a call retrace?".
    """
    living = {cache.history: cache for cache in _core.caches() if cache.history is not None}
    gone = [history for history in list(histories) if (history.records or history.loads) and history not in living]
    reports = [_history_report(history, cache) for history, cache in living.items()]
    reports += [_history_report(history, None) for history in gone]
    return Report(tuple(sorted(reports, key=lambda function: -function.seconds)))
