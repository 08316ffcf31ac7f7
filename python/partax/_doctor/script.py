"""The command `python -m partax doctor script.py`: every program that a script compiles, in the order of its cost."""

import json
import logging
import os
import threading
from collections.abc import Sequence
from typing import Any, TextIO

import jax

from partax._doctor.compiled_programs import Program, examined_program, paths_of, traced_programs
from partax._doctor.diagnosis import Diagnosis
from partax._doctor.doctor import diagnosis_of
from partax._doctor.text import print_diagnosis
from partax._io.whole_file import write_whole
from partax._jax.private import stage_of
from partax._jax.programs import watch_lowering
from partax._report.progress import progress

_logger = logging.getLogger("partax")

_MOST_PROGRAMS = 500  # that are kept, and with them their constants
_SHOWN = 20
_LEAST_SECONDS = 0.1  # a program that costs less is in the table alone


class Watch:
    """Notes every program that jax lowers in this process, with the seconds that jax tells."""

    def __init__(self) -> None:
        self.programs: dict[tuple[Any, ...], Program] = {}
        self._at_work = threading.local()
        self.is_told = watch_lowering(self._lowers)
        jax.monitoring.register_event_duration_secs_listener(self._took)

    def _lowers(self, jaxpr: Any, name: str, donated: Sequence[bool]) -> None:
        try:
            self._note(jaxpr, name, donated)
        except Exception:  # the script goes on as it would without us
            _logger.exception("partax: the program `%s` could not be noted; please report this", name)

    def _note(self, jaxpr: Any, name: str, donated: Sequence[bool]) -> None:
        name = name[4:-1] if name.startswith("jit(") else name
        key = (name, tuple(map(str, jaxpr.in_avals)), len(jaxpr.eqns))
        program = self.programs.get(key)
        if program is None:
            program = Program(name, jaxpr, tuple(donated), paths_of(jaxpr))
            if len(self.programs) < _MOST_PROGRAMS:
                self.programs[key] = program
        program.times += 1
        self._at_work.program = program

    def _took(self, event: str, duration_secs: float, **details: Any) -> None:
        program = getattr(self._at_work, "program", None)
        stage = stage_of(event, details)
        if program is None or stage == "trace" or stage is None:
            return
        if stage == "lower":
            program.lower_seconds += duration_secs
        else:
            program.compile_seconds += duration_secs

    def costliest(self) -> list[Program]:
        """All programs, what took longest first."""
        programs = list(self.programs.values()) if self.is_told else list(traced_programs())
        return sorted(programs, key=lambda program: -program.seconds)


def diagnoses(watch: Watch) -> list[Diagnosis]:
    """What the doctor finds in the programs that took long, the costliest first."""
    found: list[Diagnosis] = []
    programs = [program for program in watch.costliest()[:_SHOWN] if program.seconds >= _LEAST_SECONDS]
    with progress("", len(programs)) as work:
        for program in programs:
            work.begin(f"examining {program.name}")
            try:
                found.append(diagnosis_of(examined_program(program)))
            except Exception:  # the script has run to its end: what is known of the others is not lost
                _logger.exception("partax: the program `%s` could not be examined; please report this", program.name)
    return found


def print_programs(watch: Watch, found: Sequence[Diagnosis], file: TextIO) -> None:
    """Prints what each program has cost, and then the findings.

    Args:
      watch: what was compiled.
      found: the diagnoses of the costliest.
      file: where to.
    """
    programs = watch.costliest()
    total = sum(program.seconds for program in programs)
    print(f"\npartax: {len(programs)} programs were compiled, in {total:.3g} s\n", file=file)
    print(f"  {'seconds':>9}  {'lower':>8}  {'compile':>8}  {'times':>5}  {'equations':>9}  name", file=file)
    equations = {id(it.jaxpr): it.equations for it in (it.examined for it in found) if it is not None}
    for program in programs[:_SHOWN]:
        known = equations.get(id(program.jaxpr))
        print(
            f"  {program.seconds:9.4f}  {program.lower_seconds:8.4f}  {program.compile_seconds:8.4f}  "
            f"{program.times:5}  {'-' if known is None else len(known):>9}  {program.name}",
            file=file,
        )
    if len(programs) > _SHOWN:
        rest = sum(program.seconds for program in programs[_SHOWN:])
        print(f"  {rest:9.4f}  {'':8}  {'':8}  {'':5}  {'':9}  {len(programs) - _SHOWN} others", file=file)
    for diagnosis in found:
        if diagnosis.findings:
            print(file=file)
            print_diagnosis(diagnosis, file)
    if not any(diagnosis.findings for diagnosis in found):
        print("\nnothing found in those that took a tenth of a second or more", file=file)


def refuse_unwritable(*paths: str | None) -> None:
    """Says before a script runs for hours that what is found could not be written.

    Args:
      *paths: the files, or None.

    Raises:
      SystemExit: a file's folder is not there, or cannot be written to.
    """
    for path in paths:
        folder = None if path is None else os.path.dirname(os.path.abspath(path))
        if folder is not None and not os.access(folder, os.W_OK):
            raise SystemExit(f"partax: cannot write {path!r}: {folder!r} is no folder that you may write to")


def write_diagnoses(found: Sequence[Diagnosis], json_file: str | None, html_file: str | None) -> None:
    """Writes the diagnoses, each file as a whole or not at all.

    Args:
      found: the diagnoses.
      json_file: for a list of them as JSON, or None.
      html_file: for the page, or None.

    Raises:
      ImportError: the page needs `partax[doctor]`.
      OSError: a file cannot be written.
    """
    if json_file is not None:
        write_whole(json_file, json.dumps([json.loads(it.to_json()) for it in found], indent=2) + "\n")
    if html_file is not None:
        from partax._doctor.page import write_page  # it needs partax[doctor]

        write_page(html_file, found)
