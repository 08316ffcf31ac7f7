"""Where a trace spends its time, by the user's lines and by the attributes that they read: samples of its stack."""

import ast
import contextlib
import dataclasses
import functools
import linecache
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import CodeType, FrameType

from partax._doctor.figures import seconds_text
from partax._doctor.lines import NOWHERE, USERS, Line, group_by, rank
from partax._pytree.short_text import counted, one_line, table_lines

_INTERVAL = 0.002  # seconds between two samples
_LEAST_SHARE, _MOST, _LONGEST = 0.01, 10, 60  # of the lines, and of the attributes, that are listed; in characters


@dataclasses.dataclass(frozen=True)
class TraceCost:
    """The time of a trace in a line of yours, without that in your other lines that it calls, or in an attribute.

    Example:
      >>> step = jax.jit(lambda x: jnp.tanh(x) * 2)
      >>> profile = partax.doctor(step, jnp.ones(2), trace_profile=True).trace_profile
      >>> all(cost.share <= 1 for cost in profile.lines)
      True

    Attributes:
      seconds: The time.
      share: Its share of the trace, from 0 to 1.
      file: The file of the line, or of the one that reads the attribute most.
      line: The number of that line.
      source: The text of that line.
      name: What the line mostly calls, or the attribute and whose it is.
    """

    seconds: float
    share: float
    file: str
    line: int
    source: str
    name: str


@dataclasses.dataclass(frozen=True)
class TraceProfile:
    """Where a trace spends its time, for `print`, or as data by `dataclasses.asdict`.

    Example:
      >>> step = jax.jit(lambda x: jnp.tanh(x) * 2)
      >>> partax.doctor(step, jnp.ones(2), trace_profile=True).trace_profile.seconds > 0
      True

    Attributes:
      seconds: The time of the trace.
      samples: How often its stack was read: few say little.
      lines: At most ten lines with at least 1% of the time, the most expensive first.
      attributes: Those that run Python when they are read, in the same way.
    """

    seconds: float
    samples: int
    lines: tuple[TraceCost, ...]
    attributes: tuple[TraceCost, ...]

    def __str__(self) -> str:
        head = f"tracing took {seconds_text(self.seconds)} ({counted(self.samples, 'sample')})"
        rows = [("seconds", "share", "line", "source", "in")]
        for cost in (*self.lines, *self.attributes):
            place, source = Line(cost.file, cost.line, "").place, one_line(cost.source, _LONGEST)
            rows.append((f"{cost.seconds:.3f}", f"{cost.share:.0%}", place, source, cost.name))
        if not self.samples:
            return f"{head} (it was traced before, which `jax.clear_caches()` forgets, or took less than 2 ms)"
        return "\n".join([head, *table_lines(rows, {2, 3, 4})])


TraceCost.__module__ = TraceProfile.__module__ = "partax.reports"  # where users find them, and pickles too


Cost = tuple[Line, str, bool]  # of the user's, what it calls or reads, and whether that is an attribute
Sample = tuple[int, list[Cost]]  # nanoseconds since the one before, and what they count for


class Sampler(threading.local):
    """Samples of each thread, which it takes itself: another one would get the GIL only where jax releases it."""

    def __init__(self) -> None:
        self._traces = list[list[Sample]]()  # those in progress, one inside the other
        self._until = contextlib.ExitStack()

    def begin(self) -> None:
        self._traces.append([])
        if len(self._traces) > 1:
            return
        self._latest = time.perf_counter_ns()
        # Only the main thread handles signals, and the program may have an alarm of its own.
        is_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
        if is_main and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL:
            self._until.callback(signal.signal, signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGALRM, lambda _, frame: self._take(frame))
            signal.siginterrupt(signal.SIGALRM, False)
            self._until.callback(signal.setitimer, signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_REAL, _INTERVAL, _INTERVAL)
        else:  # which makes the trace take twice as long; the time before a call passed in the caller
            self._until.callback(sys.setprofile, sys.getprofile())
            sys.setprofile(lambda frame, event, _: self._take(frame.f_back if event == "call" else frame))

    def end(self) -> list[Sample]:
        if len(self._traces) == 1:
            self._until.close()
        return self._traces.pop()

    def _take(self, frame: FrameType | None) -> None:
        passed = time.perf_counter_ns() - self._latest
        if passed >= _INTERVAL * 0.5e9:
            self._latest += passed
            with contextlib.suppress(Exception):  # odd source, or a stack near its limit, must not fail the trace
                sample = passed, _costs_at(frame)
                for samples in self._traces:
                    samples.append(sample)


sampler = Sampler()


def _costs_at(frame: FrameType | None) -> list[Cost]:
    cost, best = (NOWHERE, "", False), 0
    callee: CodeType | None = None
    waiting, reads = list[str](), dict[str, Line]()  # attributes, whose lines are further out
    while frame is not None:
        code, kind = frame.f_code, rank(frame.f_code.co_filename)
        if kind or (callee is not None and rank(callee.co_filename)):
            name, is_attribute = _describe_call(code, frame.f_lasti, callee)
            waiting += [name] * is_attribute
            line = Line(code.co_filename, frame.f_lineno, "")
            is_own = kind == USERS and "-packages" not in line.file  # of `site` or `dist`
            if kind + is_own > best:
                cost, best = (line, name, False), kind + is_own
            if is_own:
                waiting, reads = [], dict.fromkeys(waiting, line) | reads
        callee, frame = code, frame.f_back
    return [cost, *((line, name, True) for name, line in reads.items())]


def profile_of(samples: Sequence[Sample], seconds: float) -> TraceProfile:
    total = sum(passed for passed, _ in samples)
    weights = Counter[Cost]()
    for passed, costs in samples:
        weights.update(dict.fromkeys(costs, passed))
    listed: tuple[list[TraceCost], list[TraceCost]] = [], []  # lines, and attributes
    for group in group_by(weights, lambda cost: cost[1] if cost[2] else cost[0]).values():
        share = sum(weights[cost] for cost in group) / total
        line, name, is_attribute = max(group, key=weights.__getitem__)
        if share >= _LEAST_SHARE:
            listed[is_attribute].append(TraceCost(share * seconds, share, line.file, line.line, line.source, name))
    lines, attributes = (tuple(sorted(part, key=lambda cost: -cost.share)[:_MOST]) for part in listed)
    return TraceProfile(seconds, len(samples), lines, attributes)


@functools.lru_cache(maxsize=1 << 14)
def _describe_call(code: CodeType, at: int, callee: CodeType | None) -> tuple[str, bool]:  # whether by an attribute
    first, last, begin, end = list(code.co_positions())[max(at, 0) // 2]
    lines = [line.encode() for line in linecache.getlines(code.co_filename)[(first or 1) - 1 : last]]
    try:
        node: ast.expr = ast.parse(b"(" + b"".join([*lines[:-1], lines[-1][:end]])[begin:] + b")", mode="eval").body
    except (IndexError, SyntaxError):  # it is a statement, or the file has changed
        return "", False
    match node:
        case ast.Attribute(_, name) | ast.Call(ast.Name("getattr" | "hasattr"), [_, ast.Constant(name), *_]) if callee:
            *_, owner, function = ("", *callee.co_qualname.split("."))
            is_of_owner = owner and function in (name, "__getattr__", "__getattribute__")
            return f"attribute `{name}` of `{owner}`" if is_of_owner else f"attribute `{name}`", True
        case _:
            return f"`{one_line(ast.unparse(getattr(node, 'func', node)), _LONGEST)}`", False
