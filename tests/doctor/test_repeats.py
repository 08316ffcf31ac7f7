"""The doctor finds code that is there many times, names the line and counts it, and is silent where it is not."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from examining import findings_of, marked

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
