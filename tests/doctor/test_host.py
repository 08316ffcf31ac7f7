"""Guards the promise that the doctor counts what makes a program wait for the host, and names the line."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import found_by, marked
from jax.experimental import io_callback

from partax._doctor.host import find

found = found_by(find)

X = jnp.ones(3)


def test_one_print_is_of_low_severity() -> None:
    def printed(x: Any) -> Any:
        jax.debug.print("{}", x)  # here
        return x + 1

    (finding,) = found(printed, X)
    assert (finding.kind, finding.severity) == ("host", "low")
    assert (finding.file, finding.line) == (__file__, marked(printed))
    assert finding.figures["times"] == 1
    assert finding.message.startswith("`jax.debug.print` calls Python once in each run of the program")
    assert "C++ path" in finding.message
    assert found(lambda x: x + 1, X) == []


@pytest.mark.parametrize(
    ("call", "name", "severity", "slow_path"),
    [
        (lambda x: jax.debug.print("{}", x, ordered=True), "ordered `jax.debug.print`", "medium", True),
        (lambda x: jax.debug.callback(lambda it: None, x), "`jax.debug.callback`", "low", True),
        (lambda x: io_callback(lambda it: it, x, x), "`io_callback`", "medium", True),
        (lambda x: io_callback(lambda it: it, x, x, ordered=True), "ordered `io_callback`", "medium", True),
        # It has no effect, so jax calls the program from C++.
        (lambda x: jax.pure_callback(np.sin, x, x), "`jax.pure_callback`", "medium", False),
    ],
)
def test_each_way_to_call_python(call: Any, name: str, severity: str, slow_path: bool) -> None:
    def program(x: Any) -> Any:
        return call(x), x

    (finding,) = found(program, X)
    assert finding.message.startswith(f"{name} calls Python once")
    assert finding.severity == severity
    assert ("C++ path" in finding.message) is slow_path
    assert (float(finding.figures["slow_path_seconds"]) > 0) is slow_path


@pytest.mark.parametrize(("steps", "severity"), [(60, "medium"), (70, "high")])
def test_a_print_in_a_loop_is_counted_by_steps(steps: int, severity: str) -> None:
    """https://github.com/jax-ml/jax/issues/25842: each print goes through Python, at 150 us: 67 take 10 ms."""

    def loop(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            jax.debug.print("{}", carry)  # here
            return carry * 0.9, None

        return jax.lax.scan(step, x, None, length=steps)[0]

    (finding,) = found(loop, X)
    assert (finding.severity, finding.line) == (severity, marked(loop))
    assert finding.figures["times"] == steps
    assert finding.figures["call_seconds"] == pytest.approx(steps * 150e-6)
    assert f"{steps} times in each run" in finding.message
    assert "after the loop" in finding.advice


def test_loops_in_loops_are_multiplied_and_lines_are_told_apart() -> None:
    def loop(x: Any) -> Any:
        def inner(carry: Any, _: Any) -> Any:
            return jax.pure_callback(np.sin, carry, carry), None

        def outer(carry: Any, _: Any) -> Any:
            carry = jax.pure_callback(np.cos, carry, carry)
            return jax.lax.scan(inner, carry, None, length=5)[0], None

        return jax.lax.scan(outer, x, None, length=4)[0]

    assert sorted(int(it.figures["times"]) for it in found(loop, X)) == [4, 20]


def printed(x: Any) -> Any:
    jax.debug.print("{}", x)
    return x + 1


@pytest.mark.parametrize(
    ("program", "severity", "words"),
    [
        (lambda x: jax.lax.while_loop(lambda it: it[0] < 9, printed, x), "medium", "once in each step of a while loop"),
        (lambda x: jax.lax.cond(x[0] > 0, printed, lambda it: it, x), "low", "at most once"),
    ],
)
def test_what_is_called_an_unknown_number_of_times_says_so(program: Any, severity: str, words: str) -> None:
    (finding,) = found(program, X)
    assert finding.severity == severity and words in finding.message


def test_of_a_while_loop_the_seconds_are_of_one_step() -> None:
    def loop(x: Any) -> Any:
        return jax.lax.while_loop(lambda it: it[0] < 9, lambda it: printed(printed(it)), x)

    (finding,) = found(loop, X)
    assert "2 times in each step of a while loop, about 300 us for each step" in finding.message
    assert "and 240 us for each run because" in finding.message


def scanned(x: Any, xs: Any) -> Any:
    return jax.lax.scan(lambda carry, x: (printed(carry), x), x, xs, length=3)[0]


@pytest.mark.parametrize(
    ("program", "in_carry"),
    [
        (lambda x: jax.lax.while_loop(lambda it: it[0] < 9, printed, x), True),
        (lambda x: jax.lax.fori_loop(0, 9, lambda i, it: printed(it), x), True),
        (lambda x: jax.lax.fori_loop(0, 9, lambda i, it: scanned(it, x), x), False),
        (lambda x: jax.lax.scan(lambda carry, _: (carry, printed(carry)), x, None, length=3)[1], False),
        (lambda x: scanned(x, x), False),
        (lambda x: jax.lax.scan(lambda carry, x: (printed(carry), None), x, x)[0], False),
    ],
)
def test_the_advice_is_for_the_kind_of_loop(program: Any, in_carry: bool) -> None:
    (finding,) = found(program, X)
    assert (".at[i].set" in finding.advice) is in_carry
    assert ("return what it needs as an output of the loop" in finding.advice) is not in_carry
    assert finding.advice.endswith("print all of it after the loop, once")


def test_a_check_of_a_library_is_not_reported() -> None:
    assert found(lambda x: eqx.error_if(x, x < 0, "negative"), X) == []


@pytest.mark.parametrize(("count", "is_found"), [((1 << 18) - 1, False), (1 << 18, True)])
def test_a_transfer_of_a_mebibyte_is_found(count: int, is_found: bool) -> None:
    def moved(x: Any) -> Any:
        return jax.device_put(x + 1, jax.devices()[0])  # here

    findings = found(moved, jnp.ones(count))
    assert len(findings) == is_found
    for finding in findings:
        assert (finding.severity, finding.line) == ("low", marked(moved))
        assert finding.figures == {"times": 1, "moved_bytes": 4 * count}


def test_a_transfer_in_a_loop_is_counted_by_steps() -> None:
    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jax.device_put(c, jax.devices()[0]), None), x, None, length=4)[0]

    (finding,) = found(loop, jnp.ones(1 << 16))
    assert finding.figures == {"times": 4, "moved_bytes": 1 << 20}
    assert finding.severity == "medium"


def test_placing_arrays_on_a_mesh_is_no_transfer() -> None:
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    assert found(lambda x: jax.device_put(x, sharding), jnp.ones(1 << 20)) == []
