"""Guards the promise that state which comes back with another Python number is found, by path, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from examining import found_by
from flax import nnx

import partax
from partax._doctor.retraces import find

found = found_by(find)

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


class Train(eqx.Module):
    weight: jax.Array
    step: Any
    rate: Any = eqx.field(static=True, default=0.5)

    def __call__(self, x: Any) -> Any:
        return x, in_a_module(self, x)


def counted(state: Any, x: Any) -> Any:
    return {**state, "step": state["step"] + 1, "w": state["w"] + x}, x


def in_a_pair(pair: Any, x: Any) -> Any:
    return x * 2, (pair[0] + 0.1, pair[1] + x)


def in_a_module(train: Train, x: Any) -> Any:
    return eqx.tree_at(lambda it: (it.weight, it.step), train, (train.weight + x, train.step + 1))


def a_part(state: Any, x: Any) -> Any:
    return x, {"w": state["opt"]["w"] + x, "count": state["opt"]["count"] + 1}


def to_an_array(state: Any, x: Any) -> Any:
    return {"w": state["w"] + x, "step": jnp.asarray(state["step"]) + 1}


def numbers_alone(state: Any, x: Any) -> Any:
    return {"step": state["step"] + 1}


def to_a_number(state: Any, x: Any) -> Any:
    return {"w": state["w"] + x, "step": 7}


def from_none(state: Any, x: Any) -> Any:
    return {"w": state["w"] + x, "momentum": x if state["momentum"] is None else state["momentum"] + x}


W, X = jnp.ones(3), jnp.ones(3)
# A step, its state, how the state goes on, and the path, both values and the severity.
FOUND: dict[str, tuple[Callable[..., Any], Any, Callable[[Any], Any], tuple[str, str, str, str]]] = {
    "a dictionary": (counted, {"step": 0, "w": W}, lambda it: it[0], ("state['step']", "0", "1", "high")),
    "a pair": (in_a_pair, (0.0, W), lambda it: it[1], ("pair[0]", "0.0", "0.1", "high")),
    "a module": (in_a_module, Train(W, 3), lambda it: it, ("train.step", "3", "4", "high")),
    "a part": (a_part, {"opt": {"w": W, "count": 0}, "name": "a"}, lambda it: {"opt": it[1], "name": "a"},
        ("state['opt']['count']", "0", "1", "high")),
    "a number that becomes an array": (to_an_array, {"w": W, "step": 0}, lambda it: it,
        ("state['step']", "0", "int32[]", "medium")),
    "an array that becomes a number": (to_a_number, {"w": W, "step": jnp.int32(0)}, lambda it: it,
        ("state['step']", "int32[]", "7", "medium")),
    "a dictionary of numbers alone": (numbers_alone, {"step": 0}, lambda it: it, ("state['step']", "0", "1", "high")),
    "None that becomes an array": (from_none, {"w": W, "momentum": None}, lambda it: it,
        ("state['momentum']", "None", "float32[3]", "medium")),
}  # fmt: skip


@pytest.mark.parametrize(
    "jit",
    [partax.filter_jit, eqx.filter_jit, partax.nnx.jit, nnx.jit],
    ids=["partax", "Equinox", "nnx of partax", "nnx"],
)
@pytest.mark.parametrize("name", FOUND)
def test_each_kind_of_state_is_found(name: str, jit: Any) -> None:
    function, state, _, (path, before, after, severity) = FOUND[name]
    if jit is nnx.jit and name != "a dictionary":
        pytest.skip("its state is traced")
    [finding] = found(jit(function), state, X)
    assert (finding.kind, finding.path, finding.severity) == ("retrace", path, severity)
    assert (finding.figures["before"], finding.figures["after"]) == (before, after)
    assert finding.advice.startswith("Begin with")


@pytest.mark.parametrize("jit", [partax.filter_jit, eqx.filter_jit], ids=["partax", "Equinox"])
def test_state_of_the_callable_itself_is_found(jit: Any) -> None:
    train = Train(W, 3)
    for function, path in ((train, "Train.step"), (train.__call__, "self.step")):
        [finding] = found(jit(function), X)
        assert (finding.path, finding.severity) == (path, "high")
        assert (finding.figures["before"], finding.figures["after"]) == ("3", "4")
    assert found(jit(eqx.nn.Linear(3, 3, key=jax.random.key(0))), X) == []


def averaged(params: Any, average: Any, x: Any) -> Any:
    params = {"w": params["w"] - x, "b": params["b"]}
    new_average = params if average is None else jax.tree.map(lambda a, p: 0.9 * a + 0.1 * p, average, params)
    return params, new_average


def with_momentum(w: Any, momentum: Any, x: Any) -> Any:
    momentum = x if momentum is None else 0.9 * momentum + x
    return w - momentum, momentum


@pytest.mark.parametrize("jit", [partax.filter_jit, eqx.filter_jit, jax.jit], ids=["partax", "Equinox", "jax"])
def test_an_argument_that_begins_as_none_is_found(jit: Any) -> None:
    (finding,) = found(jit(averaged), {"w": W, "b": W}, None, X)
    assert (finding.kind, finding.severity, finding.path) == ("retrace", "medium", "average")
    assert "goes in as None and comes back as float32[3] and 1 more (in `result[1]`)" in finding.message
    assert "for `average`" in finding.advice
    (finding,) = found(jit(with_momentum), W, None, X)
    assert finding.path == "momentum"
    assert found(jit(averaged), {"w": W, "b": W}, {"w": W, "b": W}, X) == []
    assert found(jit(with_momentum), W, W, X) == []


def masked(x: Any, mask: Any) -> Any:
    weights = jnp.ones(3) if mask is None else mask
    return x * weights, weights


def test_none_that_other_results_take_the_place_of_is_silent() -> None:
    assert found(jax.jit(masked), X, None) == []


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found_does_trace_again(name: str) -> None:
    function, state, go_on, (_, _, _, severity) = FOUND[name]
    step = partax.filter_jit(function)
    step.clear_cache()
    for _ in range(4):
        state = go_on(step(state, X))
    assert step.cache_info().traces == (4 if severity == "high" else 2)


def healthy(state: Any, x: Any) -> Any:
    return {"w": state["w"] + x, "step": state["step"], "name": "a"}, {"loss": x.sum(), "k": 3}


def test_state_that_stays_and_other_results_are_silent() -> None:
    state = {"w": W, "step": 3, "name": "a"}
    assert found(jax.grad(lambda rates, x: jnp.sum(rates["a"] * x + rates["b"])), {"a": 1.0, "b": 2.0}, X) == []
    assert found(partax.filter_jit(healthy), state, X) == []
    assert found(partax.filter_jit(lambda config, x: (x * config["rate"], {"rate": 7})), {"rate": 2.0}, X) == []
    assert found(jax.jit(counted), {"step": 0, "w": W}, X) == []
