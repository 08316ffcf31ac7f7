"""Guards the promise that the doctor counts what makes a program wait for the host, and names the line."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import findings_of, marked
from jax import lax

X = jnp.ones(3)


def printed(x: Any) -> Any:
    jax.debug.print("{}", x)  # here
    return x + 1


def scanned(x: Any, length: int) -> Any:
    return lax.scan(lambda carry, _: (printed(carry), None), x, None, length=length)[0]


def in_while(x: Any) -> Any:
    return lax.while_loop(lambda it: it[0] < 9, printed, x)


def in_branch(x: Any) -> Any:
    return lax.cond(x[0] > 0, printed, lambda it: it, x)


def test_a_print_is_found_at_its_line() -> None:
    (finding,) = findings_of("host", printed, X)
    assert (finding.file, finding.line, finding.severity) == (__file__, marked(printed), "low")
    assert "`jax.debug.print` calls Python once" in finding.message and "take it out" in finding.advice


def test_a_callback_is_written_with_jax_numpy() -> None:
    (finding,) = findings_of("host", lambda x: jax.pure_callback(np.sin, x, x), X)
    assert finding.severity == "medium" and "`jax.numpy`" in finding.advice


def test_each_step_of_a_scan_is_counted() -> None:
    # A call through Python takes 150 us: 67 take the 10 ms of a training step
    # (https://github.com/jax-ml/jax/issues/25842).
    for length, severity in ((66, "medium"), (67, "high")):
        (finding,) = findings_of("host", lambda x, length=length: scanned(x, length), X)
        assert (finding.severity, finding.figures["times"], finding.line) == (severity, length, marked(printed))
        assert finding.figures["call_seconds"] == pytest.approx(length * 150e-6)
        assert "an output of the loop" in finding.advice


def test_steps_of_while_loops_and_branches_are_told_apart() -> None:
    (finding,) = findings_of("host", in_while, X)
    assert finding.severity == "medium" and "each step of a while loop" in finding.message
    (finding,) = findings_of("host", in_branch, X)
    assert finding.severity == "low" and "at most once" in finding.message


def test_checks_of_libraries_are_silent() -> None:
    assert findings_of("host", lambda x: eqx.error_if(x, x < 0, "negative"), X) == []
    assert findings_of("host", lambda x: x + 1, X) == []
