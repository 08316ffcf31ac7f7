"""Guards the promise that the doctor shows its stages on a terminal while it works for long, and nothing in a pipe."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import partax
from partax._doctor import doctor as doctor_module
from partax._doctor import script
from partax._doctor.examined import Examined
from partax._doctor.finding import Finding
from partax._report import progress as module
from terminals import Terminal, terminal


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setattr(module, "_AFTER", 0)
    monkeypatch.setattr(module, "_EVERY", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    with terminal(100) as made:
        yield made


def test_each_stage_is_shown(seen: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", seen.file)
    told: list[bool] = []

    def find(_: Examined) -> list[Finding]:  # before it are tracing, lowering and compiling
        told.append(seen.wait_for("looking at slow operations") and seen.wait_for("3/5"))
        return []

    monkeypatch.setattr(doctor_module, "_FINDERS", {"slow operations": find})

    def step(x: Any) -> Any:
        told.append(seen.wait_for("tracing"))
        return x * 2

    partax.doctor(step, jnp.ones(3), compile=True)
    assert told == [True, True]
    assert seen.wait_for(lambda text: text.endswith("\r"))


def test_the_programs_of_a_script_are_counted(seen: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", seen.file)
    programs = [
        script.Program(
            name, jax.make_jaxpr(lambda x: x * 2)(1.0), (False,), ("x",), 1, Counter(lower=1.0, compile=seconds)
        )
        for name, seconds in (("train_step", 9.0), ("evaluate", 3.0))
    ]
    programs.append(script.Program("quick", None, (), (), 1))  # which is not examined

    class Watch:
        def costliest(self) -> list[script.Program]:
            return programs

        in_order = costliest
        one_by_one = script.OneByOne()

    theirs, told = script.diagnosis_of, []

    def examines(examined: Examined) -> Any:
        told.append(seen.wait_for(f"examining {examined.name}") and seen.wait_for(f"{len(told)}/2"))
        return theirs(examined)

    monkeypatch.setattr(script, "diagnosis_of", examines)
    found = script.diagnoses(Watch())  # type: ignore[arg-type]
    assert [it.name for it in found] == ["train_step", "evaluate"] and told == [True, True]
