"""What jax tells of its work: its stages, put to the trace that they were for, and its own explanations in our form."""

import contextlib
import contextvars
import dataclasses
import functools
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jax.core import Tracer

from partax import _core
from partax._jax.private import function_name, is_before_compiling, stage_of
from partax._jit.ahead_of_time import record_at_work
from partax._pytree.call_site import call_site, site_text
from partax._pytree.spec_data import details
from partax._report.explain import during

if TYPE_CHECKING:
    from partax._report.snapshot import Record

_watcher: contextvars.ContextVar[Callable[[str], None] | None] = contextvars.ContextVar("partax_watcher", default=None)


@dataclasses.dataclass
class Other:
    """What jax has done for functions of one name that are none of partax."""

    traces: int = 0
    compiles: int = 0
    seconds: float = 0.0  # lowering too


others: dict[str, Other] | None = None  # by name, from when somebody wants to know them


def watching_traces(seen: Callable[[str], None]) -> contextlib.AbstractContextManager[None]:
    """Calls `seen` with the name of each function that jax has traced in this block, before it is compiled."""
    if not _tells_traces():
        raise RuntimeError("this jax does not tell when it traces a function, so the traces cannot be limited")
    return during(_watcher, seen)


@functools.cache
def _tells_traces() -> bool:
    heard: list[str] = []
    with during(_watcher, heard.append):
        jax.jit(lambda x: x).trace(jax.ShapeDtypeStruct((), "float32"))
    return bool(heard)


def plain_name(name: str) -> str:
    """A function's name, of which jax sometimes tells `jit(name)`."""
    return name[4:-1] if name.startswith("jit(") else name


def _on_duration(event: str, duration_secs: float, **kwargs: Any) -> None:
    stage = stage_of(event)
    if stage is None:
        return
    watcher = _watcher.get()
    if watcher is not None and stage == "trace":
        watcher(function_name(kwargs))
    record = _record_of_call(compiles=stage != "trace")
    if record is None:
        if others is not None and _core.call_under_way() is None:
            other = others.setdefault(plain_name(function_name(kwargs)), Other())
            other.seconds += duration_secs
            other.traces += stage == "trace"
            other.compiles += stage == "compile"
        return
    record.stages.append((stage, time.perf_counter() - duration_secs, duration_secs))
    if stage == "trace":
        record.measured = True
        # With donation jax asks for the trace once more, and gets it at once.
        record.seconds["trace"] = max(record.seconds["trace"], duration_secs)
    else:
        record.seconds[stage] += duration_secs
        record.compiled += stage == "compile"


def _on_event(event: str, **_: Any) -> None:
    if is_before_compiling(event):
        _record_of_call()


def _record_of_call(compiles: bool = True) -> "Record | None":
    """The record that jax's work now is for, if it is for a target of ours and not for what its function calls. Without
    `compiles` that work may be a trace: jax 0.9 also tells of one that it only looks up.
    """
    under_way = _core.call_under_way()
    if under_way is None:
        return record_at_work.get()
    history, record = under_way
    if record is not None or history is None or not compiles:
        return record
    # The call found its trace: it is compiled again, or for the first time after `lower` or a trace inside another one.
    described, values = _core.describe_call()
    snapshot = history.take(details(described), values, values)
    is_transformed = any(isinstance(value, Tracer) for value in values)  # which has made another program of it
    record = history.traced_like(snapshot) if is_transformed else history.compiling(snapshot)
    if record is not None:
        _core.set_record(record)
    return record


def note_run(record: "Record") -> None:
    """Notes that a call which has compiled now returns, maybe before its program ends. Called by the native wrapper."""
    if record.stages and record.stages[-1][0] == "compile":
        _, begin, seconds = record.stages[-1]
        record.stages.append(("run", begin + seconds, time.perf_counter() - begin - seconds))


def listen() -> None:
    jax.monitoring.register_event_duration_secs_listener(_on_duration)
    jax.monitoring.register_event_listener(_on_event)


_KINDS = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint", "c": "complex"}
_SHOWN = 3

_traces: Counter[tuple[str, str]] = Counter()


def miss_text(text: str) -> str | None:
    """What jax logs of a miss, as `train.py:41 step: trace 2, because x: float32[2] -> float32[3]`; else None."""
    if "TRACING CACHE MISS" not in text:
        return None
    named = re.search(r"^\s*(?:for )?(\S+) (?:id=\d+ )?defined at (.+?)$", text, re.MULTILINE)
    name, defined = named.groups() if named else ("a function", "")
    _traces[name, defined] += 1
    number = _traces[name, defined]
    if "seen another function defined on the same line" in text:
        reason = "because the function has been made anew"
    elif number == 1 or "never seen function" in text:
        reason = "the first"
    else:
        found = list(dict.fromkeys(filter(None, map(_difference, text.splitlines()))))
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        reason = f"because {'; '.join(found[:_SHOWN])}{more}" if found else "for a reason that jax does not tell"
    site = call_site("flax", "logging")  # above what stands between the user and jax, and between jax and here
    return f"{site_text(site)} {name}: trace {number}, {reason}"


def _difference(line: str) -> str | None:
    found = re.match(r"\s*\* at (.+), now (.+?) and before (.+?)(?:, so .*)?$", line)
    if found is None:
        return None
    path, *sides = found.groups()
    statics = [match.group(1) for side in sides if (match := re.search(r"Static\(val=(.*)\)$", side))]
    now, before = statics if len(statics) == 2 else map(_type_text, sides)
    keys = re.search(r"symmetric difference of key sets: \{(.*)\}", line)
    return f"{_path(path)}: {before} -> {now}" + (f" (keys {keys.group(1)})" if keys else "")


def _path(path: str) -> str:
    """A path in (args, kwargs), which is how jax names a place in the structure, by what the user calls it."""
    inside = path.removeprefix("input path ")
    if inside == path:
        return path
    named = re.match(r"\[1\]\['(\w+)'\](.*)$", inside)
    if named:
        return named.group(1) + named.group(2)
    if inside.startswith("[0]"):
        return "args" + inside[3:]
    return "the keyword arguments" if inside == "[1]" else "kwargs" + inside[3:]


def _type_text(text: str) -> str:
    plain = re.match(r"(bf|[fiuc])(\d+)(\[.*)$", text)
    if plain:
        return f"{_KINDS[plain.group(1)]}{plain.group(2)}{plain.group(3)}"
    return re.sub(r"<class '([\w.]+)'>", lambda match: match.group(1).rpartition(".")[2], text)
