"""Guards the promise that the doctor finds code that is there many times, and what makes a program wait for the host,
names the line and counts it, and is silent where it is not."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from examining import findings_of, marked
from jax import lax

W, X = jnp.ones((8, 8)), jnp.ones((4, 8))


def loop_of(turns: int) -> Callable[..., Any]:
    def loop(w: Any, x: Any) -> Any:
        for _ in range(turns):
            x = jnp.tanh(x @ w) + jnp.sin(x)  # here
        return x

    return loop


def test_a_loop_is_found_where_it_takes_time_to_compile() -> None:
    # 16 turns of 4 equations are the 64 from which a loop counts.
    (finding,) = findings_of("repeat", loop_of(16), W, X)
    assert (finding.file, finding.line, finding.severity) == (__file__, marked(loop_of), "low")
    assert (finding.figures["repetitions"], finding.figures["equations_each"]) == (16, 4)
    assert "partax.scan_layers" in finding.advice
    assert findings_of("repeat", loop_of(15), W, X) == []
    severities = [findings_of("repeat", loop_of(turns), W, X)[0].severity for turns in (75, 250)]
    assert severities == ["medium", "high"]


def test_a_loop_over_layers_of_a_module_and_its_gradient_is_one_finding() -> None:
    model = eqx.nn.MLP(8, 8, 8, 48, key=jax.random.key(0))
    optimizer = optax.adam(1e-3)

    def loss(model: Any, x: Any) -> Any:
        return jnp.mean(jax.vmap(model)(x) ** 2)  # here

    def step(model: Any, state: Any, x: Any) -> Any:
        gradient = eqx.filter_grad(loss)(model, x)
        updates, state = optimizer.update(gradient, state)  # an update of each array is healthy
        return eqx.apply_updates(model, updates), state

    (finding,) = findings_of("repeat", step, model, optimizer.init(eqx.filter(model, eqx.is_array)), X)
    assert (finding.file, finding.line) == (__file__, marked(loss))
    assert finding.figures["repetitions"] in (47, 48)  # the first layer's backward pass lacks the gradient of x


def test_a_loop_over_a_function_of_several_lines_names_the_loop() -> None:
    def block(w: Any, x: Any) -> Any:
        normal = (x - x.mean()) / (x.std() + 1e-6)
        return x + jax.nn.gelu(normal @ w) @ w

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = block(w, x)  # here
        return (x**2).mean()

    def comprehended(ws: Any, x: Any) -> Any:
        return sum([block(w, x) for w in ws])  # here

    for function, line in ((loss, marked(loss)), (jax.grad(loss), marked(loss)), (comprehended, marked(comprehended))):
        (finding,) = findings_of("repeat", function, [W] * 20, X)
        assert (finding.file, finding.line) == (__file__, line)


def test_inside_of_a_scan() -> None:
    def scanned(w: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            for _ in range(32):
                carry = jnp.tanh(carry @ w) + x  # here
            return carry, None

        return jax.lax.scan(body, X, xs)[0]

    (finding,) = findings_of("repeat", scanned, W, jnp.ones((5, 4, 8)))
    assert finding.figures["repetitions"] == 32 and finding.line == marked(scanned)


# ---- Waiting for the host.

THREE = jnp.ones(3)


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
    (finding,) = findings_of("host", printed, THREE)
    assert (finding.file, finding.line, finding.severity) == (__file__, marked(printed), "low")
    assert "`jax.debug.print` calls Python once" in finding.message and "take it out" in finding.advice


def test_a_callback_is_written_with_jax_numpy() -> None:
    (finding,) = findings_of("host", lambda x: jax.pure_callback(np.sin, x, x), THREE)
    assert finding.severity == "medium" and "`jax.numpy`" in finding.advice


def test_each_step_of_a_scan_is_counted() -> None:
    # A call through Python takes 150 us: 67 take the 10 ms of a training step
    # (https://github.com/jax-ml/jax/issues/25842).
    for length, severity in ((66, "medium"), (67, "high")):
        (finding,) = findings_of("host", lambda x, length=length: scanned(x, length), THREE)
        assert (finding.severity, finding.figures["times"], finding.line) == (severity, length, marked(printed))
        assert finding.figures["call_seconds"] == pytest.approx(length * 150e-6)
        assert "an output of the loop" in finding.advice


def test_steps_of_while_loops_and_branches_are_told_apart() -> None:
    (finding,) = findings_of("host", in_while, THREE)
    assert finding.severity == "medium" and "each step of a while loop" in finding.message
    (finding,) = findings_of("host", in_branch, THREE)
    assert finding.severity == "low" and "at most once" in finding.message


def test_checks_of_libraries_are_silent() -> None:
    assert findings_of("host", lambda x: eqx.error_if(x, x < 0, "negative"), THREE) == []
    assert findings_of("host", lambda x: x + 1, THREE) == []
