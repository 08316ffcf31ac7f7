"""The command `python -m partax doctor script.py`: every program that a script compiles, in the order of its cost."""

import contextlib
import dataclasses
import functools
import inspect
import json
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TextIO

import jax

from partax._doctor import compiled_programs as compiled
from partax._doctor import traced_again
from partax._doctor.doctor import Diagnosis, diagnosis_of
from partax._doctor.finding import SEVERITIES, worst_first
from partax._doctor.lines import NOWHERE, grouped, running_line
from partax._doctor.one_by_one import OneByOne
from partax._families import equinox_private
from partax._io.whole_file import write_whole
from partax._jax.private import function_name, plain_name, stage_of
from partax._jax.watched import watch_functions, watch_lowering
from partax._report.history import kept
from partax._report.table import Table

_logger = logging.getLogger("partax")

_MOST_PROGRAMS = 500  # of more than a few equations that are kept, and with them their constants
_FEW_EQUATIONS = 20
_SHOWN = 20
_HEADINGS = ("seconds", "trace", "lower", "compile", "times", "equations", "name")
_NAMED = 3  # of the programs of libraries
_LEAST_SECONDS = 0.1  # of a function that costs less to compile, the findings on what its calls cost
_OF_CALLS = ("host", "precision", "memory", "waste", "donation", "checkpoint")
# What takes arguments apart by Python in each call of a jit, and puts together what comes back.
_BY_PYTHON = {
    "nnx.jit": ("_get_pure_args_kwargs", "_get_non_pure_out"), "eqx.filter_jit": ("_preprocess", "_postprocess"),
}  # fmt: skip


class Watch:
    """Notes every program that jax lowers in this process, with the seconds that jax tells."""

    def __init__(self) -> None:
        self.programs: dict[tuple[Any, ...], compiled.Program] = {}
        self.one_by_one = OneByOne()
        self._large = 0
        self._calls = compiled.Calls()
        self._at_work = threading.local()  # of each thread: `program`, and `traces`, whose programs are still to come
        self._has_ended = False
        self._jits: set[str] = set()  # that are watched, which a script imports when it has begun
        self._until = contextlib.ExitStack()
        self.is_told = watch_lowering(
            self._until, lambda jaxpr, name, donated: self._try(self._note, name, jaxpr, donated)
        )
        self.one_by_one.watch(self._until, self._try)
        jax.monitoring.register_event_duration_secs_listener(self._took)

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
        known = site if name in compiled.LOOPS_BY_THEMSELVES else None  # such a loop is a program of its own
        key = (name, tuple(map(str, (*jaxpr.in_avals, *jaxpr.out_avals))), len(jaxpr.eqns), known)
        program = self.programs.get(key)
        if program is None:
            program = compiled.Program(name, jaxpr, tuple(donated), compiled.paths_of(jaxpr), known=known, site=site)
            self.programs[key] = program
            self._large += bool(jaxpr.consts) or len(jaxpr.eqns) > _FEW_EQUATIONS
            if self._large > _MOST_PROGRAMS:
                program.known, program.jaxpr = program.line, None
        program.times += 1
        self.one_by_one.has_programs |= program.is_users
        flax = sys.modules.get("flax.nnx.transforms.compilation")
        owners = {"nnx.jit": getattr(flax, "JitWrapped", None), "eqx.filter_jit": equinox_private.jit_module()}
        for jit, owner in owners.items():
            if owner is not None and jit not in self._jits:
                self._jits.add(jit)
                took = functools.partial(self._try, self.one_by_one.note_jit)
                watch_functions(self._until, jit, owner, _BY_PYTHON[jit], took)
        traces, reason = self._traces(), self._calls.reason()
        if name not in traces and program.stages["trace"] > 0:
            program.placed += 1
        else:
            program.reasons.append(reason)
        program.stages["trace"] += traces.get(name, 0.0)
        traces.clear()  # the others were inside of it, or have no program
        self._at_work.program = program

    def _took(self, event: str, duration_secs: float, **details: Any) -> None:
        program = None if self._has_ended else getattr(self._at_work, "program", None)
        stage = stage_of(event)
        if stage == "trace":  # which comes before the program
            name, traces = plain_name(function_name(details)), self._traces()
            traces[name] = max(traces.get(name, 0.0), duration_secs)
        elif stage is not None and program is not None:
            program.stages[stage] += duration_secs
        if stage is not None:
            self.one_by_one.compiling += duration_secs

    def _traces(self) -> dict[str, float]:
        return self._at_work.__dict__.setdefault("traces", {})

    def costliest(self) -> list[compiled.Program]:
        return sorted(self.in_order(), key=lambda program: -program.seconds)

    def in_order(self) -> list[compiled.Program]:
        """All programs as they were compiled first."""
        return list(self.programs.values()) if self.is_told else list(compiled.traced_programs())


def diagnoses(watch: Watch, variables: Mapping[str, Any] = MappingProxyType({})) -> list[Diagnosis]:
    """What is found in the user's functions, the costliest first, and then in those of libraries that took long."""
    kept_programs = [it for it in watch.costliest() if it.jaxpr is not None]
    functions = sorted(_costliest_functions(kept_programs), key=lambda it: not it[0].is_users)
    worth = [it for it in functions if it[0].is_users or compiled.seconds_of(it) >= _LEAST_SECONDS][:_SHOWN]
    found: list[Diagnosis] = []
    for programs in worth:
        try:
            calls = watch.one_by_one.calls[(programs[0].line or NOWHERE)[:2]]
            found.append(_diagnosis(programs, _function(programs[0], variables), calls))
        except Exception:  # the script has run to its end: what is known of the others is not lost
            name = programs[0].name
            _logger.exception("partax: the program `%s` could not be examined; please report this", name)
    again = traced_again.of_functions(kept())
    in_order = [it for it in watch.in_order() if it.jaxpr is not None]
    again += traced_again.of_programs(in_order, again)
    again += [*traced_again.of_operations(in_order), *traced_again.of_given_functions(in_order)]
    return _together([*again, *watch.one_by_one.diagnoses()], found)


def _costliest_functions(programs: Sequence[compiled.Program]) -> list[list[compiled.Program]]:
    return sorted(compiled.by_function(programs), key=lambda it: -compiled.seconds_of(it))


def _function(program: compiled.Program, variables: Mapping[str, Any]) -> Any:
    """The function of a program, if partax has a history of it or the script a variable; else None."""
    for candidate in [*(history.function() for history in kept()), *variables.values()]:
        with contextlib.suppress(Exception):  # of the user's own objects
            function = inspect.unwrap(candidate)
            place = (function.__code__.co_filename, function.__code__.co_firstlineno)
            if program.line is not None and program.line[:2] == place and function.__name__ == program.name:
                return function
    return None


def _diagnosis(programs: Sequence[compiled.Program], function: Any, calls: int) -> Diagnosis:
    """Of the costliest of a function's programs, with what all of them took; `calls` are those by `jax.jit`."""
    examined = compiled.examined_program(programs[0], function)
    of_partax = compiled.calls_of(programs[0])
    examined.calls, examined.is_of_jax = of_partax or calls, of_partax == 0
    found = diagnosis_of(examined)
    times = sum(it.times for it in programs)
    figures = found.figures | {"programs": len(programs), "times": times, **compiled.stage_seconds(programs)}
    findings = found.findings
    if compiled.seconds_of(programs) < _LEAST_SECONDS:
        of_calls = [it for it in findings if it.kind in _OF_CALLS]
        findings = tuple(it for it in of_calls if it.severity != "low" or it.kind == "donation")
    return dataclasses.replace(found, findings=findings, figures=figures, is_of_library=not programs[0].is_users)


def _together(again: Sequence[Diagnosis], found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """One for each function, with the findings on its traces, and on loops at the same line."""
    joined: list[Diagnosis] = []
    for several in grouped([*found, *again], lambda it: (it.name, it.defined)).values():
        findings = [finding for it in reversed(several) for finding in it.findings]
        joined.append(dataclasses.replace(several[0], findings=worst_first(findings)))

    worst = {id(it): min((SEVERITIES.index(one.severity) for one in it.findings), default=9) for it in joined}
    return sorted(joined, key=lambda it: (it.is_of_library, worst[id(it)]))


def print_programs(watch: Watch, found: Sequence[Diagnosis], file: TextIO, raised: bool = False) -> None:
    """Prints what each program has cost, and then the findings of the costliest; all of it up to an exception."""
    programs = watch.costliest()
    if raised:
        print("\npartax: the script raised an exception, which comes last; until then:", file=file)
    print(f"\npartax: {len(programs)} programs were compiled, in {compiled.seconds_of(programs):.3g} s\n", file=file)
    equations = {id(it.jaxpr): str(len(it.equations)) for it in (it.examined for it in found) if it is not None}
    functions = _costliest_functions([it for it in programs if it.is_users])
    rows = [_row(it, it[0].name, equations.get(id(it[0].jaxpr), "-")) for it in functions[:_SHOWN]]
    if others := functions[_SHOWN:]:
        rows.append(_row([program for it in others for program in it], f"{len(others)} others"))
    if libraries := [it for it in programs if not it.is_users]:
        names = ", ".join(dict.fromkeys(it.name for it in libraries[:_NAMED]))
        more = ", ..." if len(libraries) > _NAMED else ""
        at = grouped(libraries, lambda it: "" if it.site is None else it.site.place)
        most = max(at, key=lambda place: compiled.seconds_of(at[place]))  # as `model.init` outside of any jit
        where = f"; most at {most}" if most else ""
        rows.append(_row(libraries, f"{len(libraries)} of jax and libraries ({names}{more}{where})"))
    print(Table(_HEADINGS, (tuple(rows),), frozenset({6}), indent=2), file=file)
    for diagnosis in found:
        if diagnosis.findings and not diagnosis.is_of_library:
            print(file=file)
            print(diagnosis, file=file)
    folded = [it for it in found if it.findings and it.is_of_library]
    if folded:
        print("\nin programs of libraries:", file=file)
    for diagnosis in folded:
        kinds = Counter(it.kind for it in diagnosis.findings)
        told = ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in kinds.items())
        print(f"  {diagnosis.name} ({diagnosis.defined or 'jax'}): {told}", file=file)
    if not raised and not any(diagnosis.findings for diagnosis in found):
        print("\nnothing found", file=file)


def _row(programs: Sequence[compiled.Program], name: str, equations: str = "-") -> tuple[str, ...]:
    seconds = (compiled.seconds_of(programs), *compiled.stage_seconds(programs).values())
    return (*(f"{it:.4f}" for it in seconds), str(sum(it.times for it in programs)), equations, name)


def refuse_unwritable(*paths: str | None) -> None:
    """Ends before a script runs for hours where what is found could not be written."""
    for path in paths:
        folder = None if path is None else os.path.dirname(os.path.abspath(path))
        if folder is not None and not os.access(folder, os.W_OK):
            raise SystemExit(f"partax: cannot write {path!r}: {folder!r} is no folder that you may write to")


def write_diagnoses(found: Sequence[Diagnosis], json_file: str | None, html_file: str | None) -> None:
    """Writes the diagnoses as a list in JSON and as a page, each file as a whole or not at all."""
    if json_file is not None:
        write_whole(json_file, json.dumps([json.loads(it.to_json()) for it in found], indent=2) + "\n")
    if html_file is not None:
        from partax._doctor.page import write_page  # it needs partax[doctor]

        write_page(html_file, found)
