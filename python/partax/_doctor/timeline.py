"""The timeline of this process: when partax's functions were traced, lowered, compiled, and run by that call."""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from partax import _core
from partax._io.whole_file import write_whole
from partax._pytree.call_site import site_text
from partax._report.history import History, kept

STAGES = ("trace", "lower", "compile", "run")
LOAD = "load"


class Event(NamedTuple):
    function: str
    defined: str  # where the function is, such as `train.py:12`
    track: int  # tells apart functions, also those of one name
    trace: int  # its number, from 1; 0 where a stored program is loaded in its place
    stage: str  # one of `STAGES`, or `LOAD`
    begin: float  # in seconds of `time.perf_counter`
    seconds: float
    reason: str  # why the trace was made
    site: str  # the call that made it, such as `train.py:41`
    failed: bool  # whether the function raised


def events() -> list[Event]:
    """What every filter_jit function was traced, lowered and compiled for in this process, by time.

    A `run` is that of the call which has compiled: it ends when that call returns, maybe before the program does.
    Functions that are gone are left out, unless `partax explain` or `partax doctor` keeps all.
    """
    histories: dict[History, None] = {cache.history: None for cache in _core.caches() if cache.history is not None}
    histories.update((history, None) for history in kept())
    found = [event for track, history in enumerate(histories, 1) for event in _of_history(history, track)]
    return sorted(found, key=lambda event: event.begin)


def _of_history(history: History, track: int) -> Iterator[Event]:
    defined = "" if history.defined is None else site_text(history.defined)
    event = partial(Event, history.name, defined, track)
    for record in history.records:
        stages = list(record.stages)
        if not record.measured and record.seconds["trace"]:  # it raised, or runs inside of another trace
            stages.insert(0, ("trace", record.started, record.seconds["trace"]))
        for stage, begin, seconds in stages:
            yield event(record.number, stage, begin, seconds, record.reason, site_text(record.site), record.failed)
    for begin, load in history.loads:
        reason = f"stored by an earlier process; saves {load.saves:.2g} s"
        yield event(0, LOAD, begin, load.seconds, reason, load.site, False)


def write_chrome_trace(path: str | Path) -> None:
    """Each function has a track, and not each thread: its stages are nested properly. Times are in microseconds."""
    process, timeline = os.getpid(), events()
    names = {event.track: f"{event.function} ({event.defined})" for event in timeline}
    told: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": process, "tid": track, "args": {"name": name}}
        for track, name in names.items()
    ]
    for event in timeline:
        args = {"trace": event.trace, "reason": event.reason, "site": event.site, "failed": event.failed}
        span = {"ph": "X", "ts": event.begin * 1e6, "dur": event.seconds * 1e6, "pid": process, "tid": event.track}
        told.append({"name": f"{event.stage} {event.function}", "cat": event.stage, **span, "args": args})
    write_whole(path, json.dumps({"traceEvents": told, "displayTimeUnit": "ms"}))
