"""The command `python -m partax doctor script.py`: every program that a script compiles, in the order of its cost."""

import contextlib
import dataclasses
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TextIO

import jax

from partax import _core
from partax._doctor.compiled_programs import STAGES, CompiledProgram, repeated_traces, seconds_of
from partax._doctor.doctor import diagnosis_of
from partax._doctor.figures import bytes_of
from partax._doctor.finding import SEVERITIES, Diagnosis, Figures
from partax._doctor.latest_calls import Trace, call_in_progress, changes_text, trace_of
from partax._doctor.lines import Line, first_line_of, group_by, running_line
from partax._doctor.loops import Loops
from partax._doctor.program import Leaf, Program, definition
from partax._doctor.trace_profile import Sample, profile_of, sampler
from partax._explain.description import Description
from partax._jax.private import STAGE_OF, plain_name
from partax._jax.watched import watch_arrays, watch_lowering, watch_operations
from partax._jit.at_work import at_work
from partax._pytree.short_text import table_lines

_logger = logging.getLogger("partax")

_SINGLE_LOOPS = ("scan", "while", "cond")  # each is a program where nothing around it is compiled


def _try(do: Callable[..., Any], name: str, *args: Any) -> Any:
    """Do something without stopping the script or the examination of other programs."""
    try:
        return do(name, *args)
    except Exception:
        _logger.exception("partax: `%s` could not be examined; please report this", name)


def _unregister(unregister: Callable[[Any], None], listener: Callable[..., None]) -> None:
    with contextlib.suppress(AssertionError, ValueError):  # the script may have removed all listeners of jax
        unregister(listener)


class Watch:
    def __init__(self, trace_profile: bool = False) -> None:
        self.programs: dict[tuple[Any, ...], CompiledProgram] = {}
        self.loops = Loops()
        self._descriptions: dict[Any, Description] = {}  # of the latest calls, by the code of their function
        self._thread = threading.local()  # of each: `program`, and `traces`, whose programs are still to come
        self._has_profile = trace_profile
        self._until = contextlib.ExitStack()
        watch_lowering(self._until, lambda jaxpr, name, donated: _try(self._note, name, jaxpr, donated))
        watch_operations(self._until, partial(_try, self.loops.note_operation))
        watch_arrays(self._until, partial(_try, self.loops.note_fetch))
        jax.monitoring.register_event_duration_secs_listener(self._note_duration)
        self._until.callback(_unregister, jax.monitoring.unregister_event_duration_listener, self._note_duration)
        jax.monitoring.register_scalar_listener(self._note_begin)
        self._until.callback(_unregister, jax.monitoring.unregister_scalar_listener, self._note_begin)

    def end(self) -> None:
        """Leave jax and NumPy as they were; what comes now is the doctor's own."""
        self._until.close()

    def _note(self, name: str, jaxpr: Any, donated: Sequence[bool]) -> None:
        name = plain_name(name)
        first_line = running_line() if name in _SINGLE_LOOPS else None  # such a loop is a program of its own
        key = (name, tuple(map(str, (*jaxpr.in_avals, *jaxpr.out_avals))), len(jaxpr.eqns), first_line)
        program = self.programs.get(key)
        if program is None:
            line = first_line or first_line_of(jaxpr.jaxpr, name)
            program = self.programs[key] = CompiledProgram(_program(name, line, jaxpr, donated))
        program.times += 1
        trace = self._note_call(program)
        self.loops.has_programs |= program.program.line.is_users
        traces = self._traces()
        if trace is not None and (name in traces or program.stages["trace"] == 0):  # else it is for other devices
            program.traces.append(trace)
        seconds, samples = traces.get(name, (0.0, []))
        program.stages["trace"] += seconds
        program.samples += samples
        traces.clear()  # the others were inside it, or have no program
        self._thread.program = program

    def _note_call(self, program: CompiledProgram) -> Trace | None:
        trace = None
        with contextlib.suppress(Exception):  # of the user's own objects
            history = record = None
            work = at_work.get()
            if isinstance(work, _core.Call):
                history, record = work.cache.history, work.record
            call = call_in_progress()
            if call is not None:
                program.program.kind, function, arguments = call
                trace, line = trace_of(function, arguments, self._descriptions), definition(function)
                with contextlib.suppress(TypeError):  # an object without weak references
                    program.function = weakref.ref(function)
                program.program.line = line if line.is_users else program.program.line
            if history is not None:
                program.program.kind, program.function = "partax", history.function
                if history.defined is not None:
                    program.program.line = Line(*history.defined, history.name)
            if record is not None:
                if record.number > 1:
                    trace = Trace(changes_text(record.changes) or record.reason, record.changes)
                program.program.name_arguments(record.description.array_paths)
        return trace

    def _note_begin(self, event: str, *_: float, **details: Any) -> None:
        if self._has_profile and STAGE_OF.get(event) == "trace":
            sampler.begin()

    def _note_duration(self, event: str, duration_secs: float, **details: Any) -> None:
        program, stage = getattr(self._thread, "program", None), STAGE_OF.get(event)
        if stage == "trace":  # which comes before the program
            name, traces = plain_name(str(details.get("fun_name", ""))), self._traces()
            samples = sampler.end() if self._has_profile else []
            if duration_secs >= traces.get(name, (0.0, []))[0]:
                traces[name] = duration_secs, samples
        elif stage is not None and program is not None:
            program.stages[stage] += duration_secs
        if stage is not None:
            self.loops.compiling += duration_secs

    def _traces(self) -> dict[str, tuple[float, list[Sample]]]:
        return self._thread.__dict__.setdefault("traces", {})


def _program(name: str, line: Line, jaxpr: Any, donated: Sequence[bool]) -> Program:
    avals = jaxpr.in_avals
    donated = donated if len(donated) == len(avals) else [False] * len(avals)
    leaves = tuple(Leaf(f"input {i}", *pair) for i, pair in enumerate(zip(avals, donated, strict=True)))
    program = Program(name, line, None, "jax", jaxpr, leaves, sum(map(bytes_of, jaxpr.out_avals)), 0.0)
    program.name_arguments(tuple(map(str, getattr(jaxpr.jaxpr.debug_info, "arg_names", None) or ())))
    return program


def diagnoses(watch: Watch) -> list[Diagnosis]:
    of_functions = (_try(_diagnosis, programs[0].program.name, programs) for programs in _costliest_functions(watch))
    diagnoses = [*filter(None, of_functions), *watch.loops.diagnoses()]
    return sorted(diagnoses, key=lambda one: SEVERITIES.index(one.findings[0].severity) if one.findings else 9)


def _costliest_functions(watch: Watch) -> list[list[CompiledProgram]]:
    users = [program for program in watch.programs.values() if program.program.line.is_users]
    groups = group_by(users, lambda program: (program.program.name, program.program.line))
    return sorted(groups.values(), key=seconds_of, reverse=True)


def _diagnosis(_: str, programs: Sequence[CompiledProgram]) -> Diagnosis:
    costliest = max(programs, key=lambda program: seconds_of([program]))
    figures: Figures = {"programs": len(programs), "times": sum(program.times for program in programs)}
    figures |= {f"{stage}_seconds": seconds_of(programs, [stage]) for stage in STAGES}
    samples = [sample for program in programs for sample in program.samples]
    profile = profile_of(samples, seconds_of(programs, ["trace"])) if samples else None
    program = dataclasses.replace(costliest.program, function=costliest.function(), trace_profile=profile)
    return diagnosis_of(program, figures, repeated_traces(programs))


def print_programs(watch: Watch, diagnoses: Sequence[Diagnosis], file: TextIO, raised: bool = False) -> None:
    programs = list(watch.programs.values())
    if raised:
        print("\npartax: the script raised an exception, which comes last; until then:", file=file)
    print(f"\npartax: {len(programs)} programs were compiled, in {seconds_of(programs):.3g} s\n", file=file)
    rows = [("seconds", "trace", "lower", "compile", "times", "name")]
    rows += [_row(group, group[0].program.name) for group in _costliest_functions(watch)]
    if of_libraries := [program for program in programs if not program.program.line.is_users]:
        rows.append(_row(of_libraries, f"{len(of_libraries)} of jax and libraries"))
    print(*table_lines(rows, {5}), sep="\n", file=file)
    texts = [f"\n{diagnosis}" for diagnosis in diagnoses if diagnosis.findings or diagnosis.trace_profile]
    print(*(texts or ([] if raised else ["\nnothing found"])), sep="\n", file=file)


def _row(programs: Sequence[CompiledProgram], name: str) -> tuple[str, ...]:
    seconds = [seconds_of(programs), *(seconds_of(programs, [stage]) for stage in STAGES)]
    return (*(f"{cell:.4f}" for cell in seconds), str(sum(program.times for program in programs)), name)
