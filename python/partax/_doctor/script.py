"""The command `python -m partax doctor script.py`: every program that a script compiles, in the order of its cost."""

import contextlib
import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import jax

from partax import _core
from partax._doctor.compiled_programs import SINGLE_LOOPS, CompiledProgram, by_function, seconds_of, stage_seconds
from partax._doctor.diagnosis import Diagnosis
from partax._doctor.doctor import diagnosis_of
from partax._doctor.finding import SEVERITIES, worst_first
from partax._doctor.latest_calls import LatestCalls, call_in_progress, partax_kind
from partax._doctor.lines import Line, grouped, running_line
from partax._doctor.loops import Loops
from partax._doctor.program import definition
from partax._doctor.traced_again import find_traced_again
from partax._jax.private import function_name, plain_name, stage_of
from partax._jax.watched import watch_lowering
from partax._jit.forwarded_arrays import arrays_in_several_places
from partax._pytree.short_text import printable

_logger = logging.getLogger("partax")

_MOST_PROGRAMS = 500  # of more than a few equations that are kept, and with them their constants
_FEW_EQUATIONS = 20
_SHOWN = 20
_NAMED = 3  # of the programs of libraries
_LEAST_SECONDS = 0.1  # of a function that costs less to compile, the findings on what its calls cost
_OF_CALLS = ("host", "memory", "donation", "checkpoint")


class Watch:
    """Notes every program that jax lowers in this process, with the seconds that jax reports."""

    def __init__(self) -> None:
        self.programs: dict[tuple[Any, ...], CompiledProgram] = {}
        self.loops = Loops()
        self._large = 0
        self._calls = LatestCalls()
        self._thread = threading.local()  # of each: `program`, and `traces`, whose programs are still to come
        self._has_ended = False
        self._until = contextlib.ExitStack()
        watch_lowering(self._until, lambda jaxpr, name, donated: self._try(self._note, name, jaxpr, donated))
        self.loops.watch(self._until, self._try)
        jax.monitoring.register_event_duration_secs_listener(self._note_duration)

    def end(self) -> None:
        """The script has ended: what comes now is the doctor's own, and jax and NumPy are as they were."""
        self._has_ended = True
        self._until.close()

    def _try(self, note: Callable[..., Any], name: str, *args: Any) -> Any:
        try:
            return None if self._has_ended else note(name, *args)
        except Exception:  # the script goes on as it would without us
            _logger.exception("partax: `%s` could not be noted; please report this", name)

    def _note(self, name: str, jaxpr: Any, donated: Sequence[bool]) -> None:
        name, site = plain_name(name), running_line()
        first_line = site if name in SINGLE_LOOPS else None  # such a loop is a program of its own
        key = (name, tuple(map(str, (*jaxpr.in_avals, *jaxpr.out_avals))), len(jaxpr.eqns), first_line)
        program = self.programs.get(key)
        if program is None:
            paths = tuple(map(str, getattr(jaxpr.jaxpr.debug_info, "arg_names", None) or ()))
            program = CompiledProgram(name, jaxpr, tuple(donated), paths, first_line=first_line, site=site)
            self.programs[key] = program
            self._large += bool(jaxpr.consts) or len(jaxpr.eqns) > _FEW_EQUATIONS
        program.times += 1
        reason = self._note_call(program)
        self.loops.has_programs |= program.is_users
        if len(program.paths) != len(jaxpr.in_avals):
            program.paths = tuple(f"input {i}" for i in range(len(jaxpr.in_avals)))
        traces = self._traces()
        if name not in traces and program.stages["trace"] > 0:
            program.placed += 1
        else:
            program.reasons.append(reason)
        program.stages["trace"] += traces.get(name, 0.0)
        traces.clear()  # the others were inside of it, or have no program
        self._thread.program = program
        if self._large > _MOST_PROGRAMS:
            program.first_line, program.jaxpr = program.line, None

    def _note_call(self, program: CompiledProgram) -> str:
        """Notes what is known of the call for which a program is lowered; the reason for which it was traced."""
        try:
            history, record = _core.call_under_way() or (None, None)
            call, leaves, reason = call_in_progress(), list[Any](), ""
            if call is not None:
                reason, leaves, program.kind = self._calls.reason(call), call.leaves, call.kind
                line = definition(call.function)
                with contextlib.suppress(TypeError):  # an object without weak references
                    program.function = weakref.ref(call.function)
                program.first_line = line if line.is_users else program.first_line
            if history is not None:
                leaves, program.kind, program.function = [], partax_kind(history), history.function
                if history.defined is not None:
                    program.first_line = Line(*history.defined, history.name)
            if record is not None:
                program.paths, leaves = record.array_paths, list(_core.describe_call()[1])
                reason = record.reason if record.number > 1 else reason
            is_whole = len(leaves) == len(program.jaxpr.in_avals)
            program.same_arrays = arrays_in_several_places(leaves) if is_whole else ()
            return reason
        except Exception:  # of the user's own objects
            return ""

    def _note_duration(self, event: str, duration_secs: float, **details: Any) -> None:
        program = None if self._has_ended else getattr(self._thread, "program", None)
        stage = stage_of(event)
        if stage == "trace":  # which comes before the program
            name, traces = plain_name(function_name(details)), self._traces()
            traces[name] = max(traces.get(name, 0.0), duration_secs)
        elif stage is not None and program is not None:
            program.stages[stage] += duration_secs
        if stage is not None:
            self.loops.compiling += duration_secs

    def _traces(self) -> dict[str, float]:
        return self._thread.__dict__.setdefault("traces", {})

    def costliest(self) -> list[CompiledProgram]:
        return sorted(self.programs.values(), key=lambda program: -program.seconds)


def diagnoses(watch: Watch) -> list[Diagnosis]:
    """What is found in the user's functions, the costliest first, and then in those of libraries that took long."""
    in_order = [it for it in watch.programs.values() if it.jaxpr is not None]
    functions = sorted(_costliest_functions(in_order), key=lambda it: not it[0].is_users)
    worth = [it for it in functions if it[0].is_users or seconds_of(it) >= _LEAST_SECONDS][:_SHOWN]
    found: list[Diagnosis] = []
    for programs in worth:
        try:
            found.append(_diagnosis(programs))
        except Exception:  # the script has run to its end: what is known of the others is not lost
            _logger.exception("partax: the program `%s` could not be examined; please report this", programs[0].name)
    return _joined(found, [*find_traced_again(in_order), *watch.loops.diagnoses()])


def _costliest_functions(programs: Sequence[CompiledProgram]) -> list[list[CompiledProgram]]:
    """The programs of each function, the costliest first."""
    functions = [sorted(it, key=lambda program: -program.seconds) for it in by_function(programs)]
    return sorted(functions, key=lambda it: -seconds_of(it))


def _diagnosis(programs: Sequence[CompiledProgram]) -> Diagnosis:
    """Of the costliest of a function's programs, with what all of them took."""
    diagnosis = diagnosis_of(programs[0].program)
    times = sum(it.times for it in programs)
    figures = diagnosis.figures | {"programs": len(programs), "times": times, **stage_seconds(programs)}
    findings = diagnosis.findings
    if seconds_of(programs) < _LEAST_SECONDS:
        of_calls = [it for it in findings if it.kind in _OF_CALLS]
        findings = tuple(it for it in of_calls if it.severity != "low" or it.kind == "donation")
    return dataclasses.replace(diagnosis, findings=findings, figures=figures, is_of_library=not programs[0].is_users)


def _joined(found: Sequence[Diagnosis], others: Sequence[Diagnosis]) -> list[Diagnosis]:
    """One for each function, with the findings on its traces, and on loops at the same line; the worst first."""
    joined: list[Diagnosis] = []
    for several in grouped([*found, *others], lambda it: (it.name, it.defined)).values():
        findings = [finding for it in reversed(several) for finding in it.findings]
        joined.append(dataclasses.replace(several[0], findings=worst_first(findings)))
    worst = {id(it): min((SEVERITIES.index(one.severity) for one in it.findings), default=9) for it in joined}
    return sorted(joined, key=lambda it: (it.is_of_library, worst[id(it)]))


def print_programs(watch: Watch, found: Sequence[Diagnosis], file: TextIO, raised: bool = False) -> None:
    """Prints what each program has cost, and then the findings of the costliest; all of it up to an exception."""
    programs = watch.costliest()
    if raised:
        print("\npartax: the script raised an exception, which comes last; until then:", file=file)
    print(f"\npartax: {len(programs)} programs were compiled, in {seconds_of(programs):.3g} s\n", file=file)
    users = _costliest_functions([it for it in programs if it.is_users])
    rows = [("seconds", "trace", "lower", "compile", "times", "name")]
    rows += [_row(it, it[0].name) for it in users[:_SHOWN]]
    if others := users[_SHOWN:]:
        rows.append(_row([program for it in others for program in it], f"{len(others)} others"))
    if of_libraries := [it for it in programs if not it.is_users]:
        names = ", ".join(dict.fromkeys(it.name for it in of_libraries[:_NAMED]))
        more = ", ..." if len(of_libraries) > _NAMED else ""
        rows.append(_row(of_libraries, f"{len(of_libraries)} of jax and libraries ({names}{more})"))
    for *cells, name in rows:
        print("  ", *(f"{cell:>8}" for cell in cells), f" {printable(name)}", file=file)
    for diagnosis in found:
        if diagnosis.findings and not diagnosis.is_of_library:
            print(f"\n{diagnosis}", file=file)
    if libraries := [f"{it.name} ({it.defined or 'jax'})" for it in found if it.findings and it.is_of_library]:
        print(f"\nfindings in programs of libraries, which `--html` shows: {', '.join(libraries)}", file=file)
    if not raised and not any(diagnosis.findings for diagnosis in found):
        print("\nnothing found", file=file)


def _row(programs: Sequence[CompiledProgram], name: str) -> tuple[str, ...]:
    seconds = (seconds_of(programs), *stage_seconds(programs).values())
    return (*(f"{it:.4f}" for it in seconds), str(sum(it.times for it in programs)), name)


def refuse_unwritable(path: str) -> None:
    """Ends before a script runs for hours where what is found could not be written."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.access(folder, os.W_OK):
        raise SystemExit(f"partax: cannot write {path!r}: {folder!r} is not a folder that you may write to")
