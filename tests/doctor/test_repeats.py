"""The doctor finds code that is there many times, names the line and counts it, and is silent where it is not."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from examining import marked
from hypothesis import given, settings
from hypothesis import strategies as st

import partax
from partax import Finding

W, X = jnp.ones((8, 8)), jnp.ones((4, 8))


def found(function: Callable[..., Any], *args: Any, **options: Any) -> list[Finding]:
    return [it for it in partax.doctor(function, *args, **options).findings if it.kind == "repeat"]


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


@pytest.mark.parametrize(("turns", "severity"), [(74, "low"), (75, "medium"), (249, "medium"), (250, "high")])
def test_the_severity_is_by_the_number_of_equations(turns: int, severity: str) -> None:
    assert [it.severity for it in found(loop_of(turns), W, X)] == [severity]


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


@pytest.mark.parametrize(("equations", "is_found"), [(100, True), (600, False)])
def test_what_is_scattered_must_be_a_large_part(equations: int, is_found: bool) -> None:
    """Guards that the eight layer norms of a large model are no finding."""
    operations = (jnp.sin, jnp.cos, jnp.tan, jnp.exp, jnp.tanh, jnp.abs, jnp.floor, jnp.ceil)
    order = np.random.default_rng(0).integers(0, len(operations), equations)

    def function(x: Any) -> Any:
        for i, at in enumerate(order):
            x = operations[at](x)
            if i % (equations // 8) == 0:
                x = norm(x)
        return x

    findings = found(function, X)
    assert bool(findings) is is_found
    assert all("in different places" in it.message for it in findings)


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
    assert "`norm`" in finding.advice and "in different places" in finding.message


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


def test_measured_seconds_are_of_the_loop_and_of_its_scan() -> None:
    (finding,) = found(loop_of(40), W, X, measure=True)
    assert finding.figures["measured_turns"] == 8
    assert float(finding.figures["scan_seconds"]) > 0 and float(finding.figures["loop_seconds"]) > 0


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["sin", "cos", "tanh", "dot", "slice"]), min_size=2, max_size=9),
    st.integers(8, 60),
    st.lists(st.sampled_from(["exp", "sort", "cumsum"]), max_size=9),
)
def test_random_loops_are_counted(body: list[str], turns: int, around: list[str]) -> None:
    """Guards the count of turns and of equations, against what was written down."""
    operations: dict[str, Callable[[Any], Any]] = {
        "sin": jnp.sin, "cos": jnp.cos, "tanh": jnp.tanh, "dot": lambda x: jax.lax.dot(x, W),
        "slice": lambda x: jax.lax.rev(x, (0,)), "exp": jnp.exp, "sort": lambda x: jax.lax.sort(x),
        "cumsum": lambda x: jax.lax.cumsum(x),
    }  # fmt: skip
    body = [*body, "dot"]

    def function(x: Any) -> Any:
        for name in around:
            x = operations[name](x)
        for name in body * turns:
            x = operations[name](x)
        for name in around:
            x = operations[name](x)
        return x

    total = turns * len(body) + 2 * len(around)
    findings = found(function, X)
    if turns * len(body) < 64 or turns * len(body) / total < 0.2:
        assert not findings
        return
    (finding,) = findings
    # The body may itself be a shorter one several times over.
    each = next(n for n in range(1, len(body) + 1) if len(body) % n == 0 and body == body[:n] * (len(body) // n))
    assert finding.figures["equations_each"] == each
    assert finding.figures["equations"] == turns * len(body)
    np.testing.assert_allclose(float(finding.figures["share"]), turns * len(body) / total, atol=1e-3)


def cheap(turns: int) -> Callable[..., Any]:
    def loop(x: Any) -> Any:
        for _ in range(turns):
            x = x * 1.01 + 0.1 * x - 0.2  # here
        return x

    return loop


@pytest.mark.parametrize("inner", [1, 7, 20, 22, 40, 70, 150, 300])
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


@pytest.mark.parametrize(("turns", "severities"), [(99, []), (130, ["info"]), (200, ["info"]), (250, ["high"])])
def test_a_loop_that_costs_little_so_far_is_told(turns: int, severities: list[str]) -> None:
    findings = found(cheap(turns), X)
    assert [it.severity for it in findings] == severities
    for finding in findings:
        assert finding.line == marked(cheap) and finding.figures["repetitions"] == turns
        assert ("soon done with" in finding.message) is (finding.severity == "info")
