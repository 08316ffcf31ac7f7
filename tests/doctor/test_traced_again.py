"""Of programs with the seconds that they took: what the doctor says of those that were compiled again and again."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from examining import floats

from partax._doctor.compiled_programs import Program
from partax._doctor.lines import Line
from partax._doctor.traced_again import of_given_functions, of_operations, of_programs


def sines(lengths: Sequence[int], seconds: float, reasons: Sequence[str] = ()) -> list[Program]:
    """A sine of each length, which took so long to compile, called at one line of `features`."""
    traced = [jax.jit(jnp.sin).trace(floats(length)).jaxpr for length in lengths]
    site, took = Line(__file__, 1, "features"), Counter(compile=seconds)
    return [Program("sin", it, (), ("x",), 6, took, site=site, reasons=list(reasons)) for it in traced]


@pytest.mark.parametrize(
    ("lengths", "seconds", "levels", "text"),
    [
        (range(10, 0, -1), 0.3, ["medium"], "arrays of ever-new shapes: x: float32[2] -> float32[1] at last."),
        (range(10, 0, -1), 0.05, [], ""),
        (range(1, 16), 0.02, ["low"], "an array that grows: x: float32[14] -> float32[15] at last. This took 300 ms."),
        (range(1, 16), 0.5, ["high"], "`sin` was compiled 15 times at this line, for an array that grows"),
    ],
)
def test_operations_on_many_shapes_weigh_what_they_took(lengths: Any, seconds: float, levels: Any, text: str) -> None:
    findings = [it for diagnosis in of_operations(sines(lengths, seconds)) for it in diagnosis.findings]
    assert [it.severity for it in findings] == levels and all(text in it.message for it in findings)


def test_a_library_that_is_given_a_function_made_anew_is_told_at_the_line_that_calls_it() -> None:
    anew = "", *["terms: <lambda> at script.py:4 is new (same code)"] * 5
    ((finding,),) = [it.findings for it in of_given_functions(sines([3], 6.0, anew))]
    assert (finding.line, finding.severity) == (1, "medium") and "which took 5 s after the first" in finding.message
    assert of_given_functions([*sines([3], 0.2, anew), *sines([3], 6.0, anew[:2])]) == []


def test_the_advice_is_for_what_differs() -> None:
    number, optimizer = "cfg.temp: static float 0.5 -> 0.4", "s.tx.init: init_fn at optax/transforms/a.py:7 is new"
    anew = "it closes over other values of `w`", "Make the function"
    for reason, advice in ((number, "Pass `cfg.temp` as"), (optimizer, "Make the optimizer"), anew):
        [program] = sines([3], 1.0, ["", *[reason] * 5])
        program.known = Line(__file__, 1, "step")
        ((finding,),) = [it.findings for it in of_programs([program], ())]
        assert finding.advice.startswith(advice) and ("`s.tx`" in finding.message) is (reason is optimizer)


@pytest.mark.parametrize(("key", "count"), [("m", 1), ("other", 0)])
def test_a_state_that_begins_with_none_is_found_by_its_second_program(key: str, count: int) -> None:
    average = jax.jit(lambda it: {key: it["w"] * 2 if it["m"] is None else it["m"] + 1, "w": it["w"]})
    cases = (None, ("it['w']",), ""), (floats(3), ("it['m']", "it['w']"), "it['m']: None -> float32[3]")
    traced = [(average.trace({"m": m, "w": floats(3)}).jaxpr, paths, reason) for m, paths, reason in cases]
    programs = [Program("f", it, (), paths, 1, Counter(compile=1.0), reasons=[why]) for it, paths, why in traced]
    assert len(of_programs(programs, ())) == count
