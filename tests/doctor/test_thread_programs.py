"""Guards the promise that the doctor explains programs of public threads: what, where, how much, what to do."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
from thread_programs import PROGRAMS, ThreadProgram

from partax._doctor.diagnosis import Diagnosis
from partax._doctor.doctor import doctor

# The first and the last turns of an unrolled loop are often not as the others: a constant comes in, or none goes out.
TURNS_THAT_DIFFER = 2
# How far the estimate of the peak may be from what XLA takes.
ESTIMATED = 0.1


def diagnosed(program: ThreadProgram) -> Diagnosis:
    function, args = program.make()
    return doctor(function, *args, memory_limit=program.memory_limit)


def is_near(name: str, expected: Any, found: Any) -> bool:
    if name == "repetitions":
        return expected - TURNS_THAT_DIFFER <= found <= expected
    if name == "peak_bytes":
        return abs(found - expected) <= ESTIMATED * expected
    return found == expected


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_thread_s_program_is_explained(program: ThreadProgram) -> None:
    diagnosis = diagnosed(program)
    findings = [finding for finding in diagnosis.findings if finding.kind == program.kind]
    assert len(findings) == 1, str(diagnosis)
    (finding,) = findings
    assert finding.message and finding.advice
    assert program.path in finding.path
    if program.lines:
        assert (finding.file, finding.line) in {(program.file, line) for line in program.lines}, str(diagnosis)
        assert finding.source == linecache.getline(program.file, finding.line).strip()
    for name, expected in program.figures.items():
        assert is_near(name, expected, finding.figures[name]), str(diagnosis)
    assert {it.kind for it in diagnosis.findings} <= {program.kind, *program.also}, str(diagnosis)
