"""Guards the promise that the doctor counts what makes a program wait for the host, and names the line."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import findings_of_kind, marked
from jax import lax

found = findings_of_kind("host")

X = jnp.ones(3)


def printed(x: Any) -> Any:
    jax.debug.print("{}", x)  # here
    return x + 1


def scanned(x: Any, xs: Any = None, length: int = 3) -> Any:
    return lax.scan(lambda carry, x: (printed(carry), x), x, xs, length=length)[0]


def in_while(body: Any) -> Any:
    return lambda x: lax.while_loop(lambda it: it[0] < 9, body, x)


AS_OUTPUT, IN_CARRY, TAKE_OUT = "return what it needs as an output of the loop", ".at[i].set", "take it out"
NUMPY = "write it with `jax.numpy`"
# Each is the severity, how often Python is called, and words of message and advice. A call through Python takes 150 us:
# 67 take the 10 ms of a training step (https://github.com/jax-ml/jax/issues/25842).
FOUND: dict[str, tuple[Any, str, int, str, str]] = {
    "a print": (printed, "low", 1, "`jax.debug.print` calls Python once in each run of the program", TAKE_OUT),
    "in order": (lambda x: (jax.debug.print("{}", x, ordered=True), x), "medium", 1,
        "ordered `jax.debug.print` calls Python once", TAKE_OUT),
    "pure_callback": (lambda x: jax.pure_callback(np.sin, x, x), "medium", 1,
        "`jax.pure_callback` calls Python once", NUMPY),
    "66 steps": (lambda x: scanned(x, length=66), "high", 66, "66 times in each run", IN_CARRY),
    "a while loop": (in_while(printed), "medium", 1, "once in each step of a while loop", IN_CARRY),
    "twice in a while loop": (in_while(lambda it: printed(printed(it))), "medium", 2,
        "2 times in each step of a while loop, about 300 us for each step, and 240 us for each run because", IN_CARRY),
    "a branch": (lambda x: lax.cond(x[0] > 0, printed, lambda it: it, x), "low", 1, "at most once", TAKE_OUT),
    "a scan along arrays": (lambda x: scanned(x, x), "medium", 3, "3 times", AS_OUTPUT),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_each_call_of_python_is_counted_with_its_cure(name: str) -> None:
    program, severity, times, message, advice = FOUND[name]
    (finding,) = found(program, X)
    assert (finding.kind, finding.severity, finding.figures["times"]) == ("host", severity, times)
    assert finding.figures["call_seconds"] == pytest.approx(times * 150e-6)
    assert message in finding.message and advice in finding.advice
    if "print" in finding.message:
        assert (finding.file, finding.line) == (__file__, marked(printed)) or name == "in order"
    if advice in (AS_OUTPUT, IN_CARRY):
        assert finding.advice.endswith("print all of it after the loop, once")
    has_effect = "pure" not in name  # without one jax calls the program from C++
    assert ("C++ path" in finding.message) is (float(finding.figures["slow_path_seconds"]) > 0) is has_effect


def test_loops_in_loops_are_multiplied_and_lines_are_told_apart() -> None:
    inner = lambda c, _: (jax.pure_callback(np.sin, c, c), None)
    outer = lambda c, _: (lax.scan(inner, jax.pure_callback(np.cos, c, c), None, length=5)[0], None)
    findings = found(lambda x: lax.scan(outer, x, None, length=4)[0], X)
    assert sorted(int(it.figures["times"]) for it in findings) == [4, 20]


def test_checks_of_libraries_are_silent() -> None:
    assert found(lambda x: eqx.error_if(x, x < 0, "negative"), X) == []
    assert found(lambda x: x + 1, X) == []
