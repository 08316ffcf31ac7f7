"""report: what each function has cost, from the records of its traces."""

from collections.abc import Iterator
from typing import Any

from partax import _core
from partax._explain.history import History, Record, histories
from partax._explain.results import FunctionReport, Report, TraceReport
from partax._pytree.call_site import site_text

_SHOWN = 4  # static values of one key


def _static_texts(records: list[Record]) -> Iterator[str]:
    """The static values of each trace that not all of them have."""
    entries = [record.description.entries.items() for record in records]
    statics = [[f"{path}={entry.value_text}" for path, entry in of_one if entry.label] for of_one in entries]
    of_all = set.intersection(*map(set, statics)) if statics else set[str]()
    for texts in ([text for text in of_one if text not in of_all] for of_one in statics):
        yield ", ".join(texts[:_SHOWN]) + (", ..." if len(texts) > _SHOWN else "")


def _history_report(history: History, cache: _core.CallCache | None) -> FunctionReport:
    programs = [] if cache is None else cache.programs()
    calls = dict(trace for program in programs for trace in program.traces)
    records = list(history.records)  # another thread may add one
    traces = [
        TraceReport(
            record.number, site_text(record.site), record.reason, static, calls.get(record.number),
            record.seconds["trace"], record.seconds["lower"], record.seconds["compile"], record.compiled, record.failed,
        )
        for record, static in zip(records, _static_texts(records), strict=True)
    ]  # fmt: skip
    defined = "" if history.defined is None else site_text(history.defined)
    hits, misses = (None, None) if cache is None else cache.counts[2:4]
    return FunctionReport(history.name, defined, hits, misses, tuple(traces), tuple(history.loads))


def function_report(self: Any) -> FunctionReport:
    return _history_report(self._cache.history or History(self.__name__, None), self._cache)


def report() -> Report:
    """Return the cost of every `filter_jit` function that has been traced; of those that are deleted, the latest 256.

    Example:
      >>> _ = partax.filter_jit(jnp.mean)(jnp.ones(3))
      >>> "mean" in [function.name for function in partax.report().functions]
      True

    Returns:
      A `partax.reports.Report`, which prints as a table for each function; `to_json()` returns it as data.

    See Also: The guide "When does a call retrace?".
    """
    caches = {cache.history: cache for cache in _core.caches() if cache.history is not None}
    gone = [history for history in list(histories) if (history.records or history.loads) and history not in caches]
    reports = [_history_report(history, caches.get(history)) for history in (*caches, *gone)]
    return Report(tuple(sorted(reports, key=lambda function: -function.seconds)))
