"""Guards the promise that what makes the next call trace or compile again is found, by path, and nothing else is."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import findings_of, floats
from flax import nnx

import partax
from partax import filter_jit

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


def scaled(state: Any, scale: Any) -> Any:
    return {"w": state["w"] * 0.5, "n": state["n"] + 1}, scale * jnp.float32(2)


@pytest.mark.parametrize("scale", [1.0, jnp.asarray(1.0)], ids=["number", "array"])
def test_a_weak_type_that_becomes_a_strong_one_is_found(scale: Any) -> None:
    (finding,) = findings_of("retrace", jax.jit(scaled), {"w": jnp.ones(3), "n": jnp.int32(0)}, scale)
    assert (finding.severity, finding.path) == ("medium", "scale")
    assert (finding.file, finding.line) == (__file__, inspect.getsourcelines(scaled)[1])
    assert (finding.figures["before"], finding.figures["after"]) == ("weak float32", "float32")
    assert "dtype=jnp.float32" in finding.advice


@pytest.mark.parametrize("scale", [np.float32(1), jnp.float32(1)], ids=["NumPy", "jax"])
def test_a_strong_type_that_stays_is_not(scale: Any) -> None:
    assert findings_of("retrace", jax.jit(scaled), {"w": jnp.ones(3), "n": jnp.int32(0)}, scale) == []


@pytest.mark.parametrize("jit", [jax.jit, filter_jit], ids=["jax", "partax"])
def test_an_array_of_another_dtype_is_found_inside_of_an_argument(jit: Any) -> None:
    def step(state: Any, x: Any) -> Any:
        return {"w": state["w"] + x, "half": state["half"].astype(jnp.float32) * 2}

    (finding,) = findings_of("retrace", jit(step), {"w": jnp.ones(3), "half": jnp.ones(4, jnp.float16)}, floats(3))
    assert finding.path == "state['half']" and ".astype(jnp.float16)" in finding.advice


def appended(x: Any, cache: Any) -> Any:
    return x * 2, jax.tree.map(lambda rows: jnp.concatenate([rows, x[None]]), cache)


def test_what_each_call_appends_to_grows_and_what_is_padded_does_not() -> None:
    (finding,) = findings_of("retrace", jax.jit(appended), floats(3), floats(4, 3))
    assert (finding.path, finding.severity) == ("cache", "high") and "final size" in finding.advice
    (finding,) = findings_of("retrace", jax.jit(lambda *args: appended(*args)), floats(3), (floats(4, 3), floats(4, 3)))
    assert finding.path == "args[1][0]"
    assert findings_of("retrace", jax.jit(lambda x: jnp.concatenate([x, jnp.ones((1, 3))])), floats(4, 3)) == []


def test_a_static_number_that_counts_is_found_at_its_place() -> None:
    def step(state: Any, count: int, x: Any) -> Any:
        return {"a": state["a"] + x, "b": state["b"]}, count + 1

    def resized(state: Any, size: int, x: Any) -> Any:
        return {"a": state["a"] + x, "b": state["b"]}, size * 4

    state = {"a": floats(3), "b": floats(3)}
    (finding,) = findings_of("retrace", filter_jit(step), state, 7, jnp.ones(3))
    assert (finding.path, finding.severity, finding.figures["after"]) == ("count", "high", "8")
    assert 'dynamic=("count",)' in finding.advice
    assert findings_of("retrace", filter_jit(step, dynamic=("count",)), state, 7, jnp.ones(3)) == []
    assert findings_of("retrace", filter_jit(resized), state, 7, jnp.ones(3)) == []


class Train(eqx.Module):
    weight: jax.Array
    rate: Any = eqx.field(static=True, default=0.5)


def counted(state: Any, x: Any) -> Any:
    return {"step": state["step"] + 1, "w": state["w"] + x}


def to_an_array(state: Any, x: Any) -> Any:
    return {"w": state["w"] + x, "step": jnp.asarray(state["step"]) + 1}


def from_none(state: Any, x: Any) -> Any:
    return {"w": state["w"] + x, "momentum": x if state["momentum"] is None else state["momentum"] + x}


W, X = jnp.ones(3), jnp.ones(3)
# A step, its state, and the path, both values and the severity.
STATES: dict[str, tuple[Callable[..., Any], Any, tuple[str, str, str, str]]] = {
    "a dictionary": (counted, {"step": 0, "w": W}, ("state['step']", "0", "1", "high")),
    "a number that becomes an array": (to_an_array, {"w": W, "step": 0},
        ("state['step']", "0", "weak int32", "medium")),
    "a static field": (lambda train, x: Train(train.weight + x, train.rate * 2), Train(W),
        ("train.rate", "0.5", "1.0", "high")),
    "None that becomes an array": (from_none, {"w": W, "momentum": None},
        ("state['momentum']", "None", "float32[3]", "medium")),
}  # fmt: skip


def check_state(name: str, jit: Any) -> None:
    function, state, (path, before, after, severity) = STATES[name]
    (finding,) = findings_of("retrace", jit(function), state, X)
    assert (finding.path, finding.severity) == (path, severity) and "Begin with" in finding.advice
    assert (finding.figures["before"], finding.figures["after"]) == (before, after)


@pytest.mark.parametrize("name", STATES)
def test_state_that_comes_back_as_another_type_is_found(name: str) -> None:
    check_state(name, filter_jit)


@pytest.mark.parametrize("jit", [eqx.filter_jit, partax.nnx.jit, nnx.jit], ids=["Equinox", "partax.nnx", "nnx"])
def test_whichever_jit_compiles_the_step(jit: Any) -> None:
    check_state("a dictionary", jit)


def test_of_jax_what_is_no_leaf_is_static() -> None:
    check_state("a static field", jax.jit)
    check_state("None that becomes an array", jax.jit)
    assert findings_of("retrace", jax.jit(counted), {"step": 0, "w": W}, X) == []


@pytest.mark.parametrize("name", STATES)
def test_what_is_found_does_trace_again(name: str) -> None:
    function, state, (_, _, _, severity) = STATES[name]
    step = filter_jit(function)
    step.clear_cache()
    for _ in range(4):
        state = step(state, X)
    assert step.cache_info().traces == (4 if severity == "high" else 2)


def masked(x: Any, mask: Any) -> Any:
    weights = jnp.ones(3) if mask is None else mask
    return x * weights, weights


def test_what_is_no_state_is_silent() -> None:
    pair = {"a": floats(3), "b": floats(3)}
    halved = jax.jit(lambda x: {name: x[name].astype("float16") for name in x})
    assert findings_of("retrace", jax.jit(lambda x: x.astype("float16") + 1), floats(8)) == []
    assert findings_of("retrace", jax.jit(lambda x, y: (x.astype("float16"), y.sum())), floats(8), floats(8)) == []
    assert findings_of("retrace", halved, pair) == []
    assert findings_of("retrace", jax.jit(masked), X, None) == []
    gradient = jax.grad(lambda rates, x: jnp.sum(rates["a"] * x + rates["b"]))
    assert findings_of("retrace", gradient, {"a": 1.0, "b": 2.0}, X) == []


def test_state_that_stays_is_silent() -> None:
    def step(state: Any, x: Any) -> Any:
        return {"w": state["w"] + x, "step": state["step"], "name": "a"}, {"loss": x.sum(), "k": 3}

    assert findings_of("retrace", filter_jit(step), {"w": W, "step": 3, "name": "a"}, X) == []
