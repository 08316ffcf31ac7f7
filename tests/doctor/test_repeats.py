"""The doctor finds code that is there many times, names the line and counts it, and is silent where it is not."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from examining import findings_of_kind, marked

W, X = jnp.ones((8, 8)), jnp.ones((4, 8))


found = findings_of_kind("repeat")


def loop_of(turns: int) -> Callable[..., Any]:
    def loop(w: Any, x: Any) -> Any:
        for _ in range(turns):
            x = jnp.tanh(x @ w) + jnp.sin(x)  # here
        return x

    return loop


@pytest.mark.parametrize(("turns", "is_found"), [(7, False), (15, False), (16, True)])
def test_what_compiles_in_a_moment_is_not_reported(turns: int, is_found: bool) -> None:
    # 16 turns of 4 equations are the 64 from which a loop counts, 7 turns are too few however long each is.
    assert bool(found(loop_of(turns), W, X)) is is_found

    def long_turns(w: Any, x: Any) -> Any:
        for _ in range(turns):
            for operation in (jnp.sin, jnp.cos, jnp.tanh, jnp.exp, jnp.log1p, jnp.sqrt, jnp.square, jnp.abs):
                x = operation(x @ w)
        return x

    assert bool(found(long_turns, W, X)) is (turns > 7)


def test_layers_of_different_shapes_are_found_too() -> None:
    def pyramid(ws: Any, x: Any) -> Any:
        for w in ws:
            x = jnp.tanh(x @ w) * 2  # here
        return x

    widths = range(10, 50)
    ws = [jnp.ones((a, a + 1)) for a in widths]
    (finding,) = found(pyramid, ws, jnp.ones((2, 10)))
    assert finding.figures["repetitions"] == len(widths) and finding.line == marked(pyramid)
    assert "pad them to one shape" in finding.advice


def test_a_loop_over_layers_of_a_module_and_its_gradient_is_one_finding() -> None:
    model = eqx.nn.MLP(8, 8, 8, 48, key=jax.random.key(0))
    optimiser = optax.adam(1e-3)

    def loss(model: Any, x: Any) -> Any:
        return jnp.mean(jax.vmap(model)(x) ** 2)  # here

    def step(model: Any, state: Any, x: Any) -> Any:
        gradient = eqx.filter_grad(loss)(model, x)
        updates, state = optimiser.update(gradient, state)
        return eqx.apply_updates(model, updates), state

    findings = found(step, model, optimiser.init(eqx.filter(model, eqx.is_array)), X)
    (layers,) = [it for it in findings if it.line == marked(loss)]
    assert layers.file == __file__
    assert layers.figures["repetitions"] in (47, 48)  # the first layer's backward pass lacks the gradient of x
    # What else repeats is the optimiser's, for each array.
    assert all("optimiser.update" in it.source or "apply_updates" in it.source for it in findings if it is not layers)


def test_a_loop_over_a_function_of_several_lines_names_the_loop() -> None:
    def block(w: Any, x: Any) -> Any:
        normal = (x - x.mean()) / (x.std() + 1e-6)
        return x + jax.nn.gelu(normal @ w) @ w

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = block(w, x)  # here
        return (x**2).mean()

    for function in (loss, jax.grad(loss)):
        (finding,) = found(function, [W] * 20, X)
        assert (finding.file, finding.line) == (__file__, marked(loss))

    def comprehended(ws: Any, x: Any) -> Any:
        return sum([block(w, x) for w in ws])  # here

    (finding,) = found(comprehended, [W] * 20, X)
    assert finding.line == marked(comprehended)


def norm(x: Any) -> Any:
    return (x - jnp.mean(x)) / jnp.sqrt(jnp.var(x) + 1e-6) * jnp.tanh(x.sum()) + jnp.max(x)  # here


def test_a_function_called_in_many_places_is_found() -> None:
    def everywhere(x: Any) -> Any:
        a = norm(x)
        b = norm(a) ** 2
        c = norm(b[::-1]) - a
        d = norm(jnp.sort(c, 0)) * 2
        e = norm(d) + norm(c)
        f = norm(e / 3) + d
        return norm(jnp.cos(f)) + norm(jnp.floor(f))

    (finding,) = found(everywhere, X)
    assert (finding.file, finding.line, finding.figures["repetitions"]) == (__file__, marked(norm), 9)
    assert "`norm`" in finding.advice


def test_inside_of_a_scan_and_of_a_nested_jit() -> None:
    def scanned(w: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            for _ in range(32):
                carry = jnp.tanh(carry @ w) + x  # here
            return carry, None

        return jax.lax.scan(body, X, xs)[0]

    (finding,) = found(scanned, W, jnp.ones((5, 4, 8)))
    assert finding.figures["repetitions"] == 32 and finding.line == marked(scanned)
    (nested,) = found(lambda w, x: jax.jit(loop_of(32))(w, x), W, X)
    assert nested.figures["repetitions"] == 32


@pytest.mark.parametrize(
    ("length", "unroll", "severity"), [(60, True, "low"), (400, 100, "medium"), (400, 16, ""), (30, True, "")]
)
def test_a_scan_that_is_unrolled_is_one_loop(length: int, unroll: Any, severity: str) -> None:
    def scanned(w: Any, x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            return jnp.tanh(carry @ w) + jnp.sin(carry), None

        return jax.lax.scan(body, x, None, length=length, unroll=unroll)[0]  # here

    findings = found(scanned, W, X)
    assert [(it.severity, it.line) for it in findings] == ([(severity, marked(scanned))] if severity else [])
    assert all(it.figures["repetitions"] == min(int(unroll), 400) or unroll is True for it in findings)


@pytest.mark.parametrize("inner", [1, 22])
def test_a_cheap_loop_within_a_costly_one_does_not_hide_it(inner: int) -> None:
    def layers(ws: Any, x: Any) -> Any:
        for w in ws:  # here
            x = jnp.tanh(x @ w)
            for _ in range(inner):
                x = x * 0.9 + jnp.sin(x)
        return x

    (finding,) = found(layers, [W] * 30, X)
    assert finding.figures["repetitions"] in (29, 30)
    assert finding.figures["equations_each"] == 2 + 3 * inner
