"""Guards the promise that what makes the next call trace or compile again is found, by path, and nothing else is."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examining import findings_of_kind, floats
from flax import nnx

import partax
from counting import SEEN, seen
from partax import filter_jit

found = findings_of_kind("retrace")
pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


def scaled(state: Any, scale: Any) -> Any:
    state = {"w": state["w"] * 0.5, "n": state["n"] + 1}
    return state, scale * jnp.float32(2)


@pytest.mark.parametrize(("scale", "count"), [(1.0, 1), (np.float32(1), 0), (jnp.asarray(1.0), 1), (jnp.float32(1), 0)])
def test_a_weak_type_that_becomes_a_strong_one_is_found(scale: Any, count: int) -> None:
    begin: Any = {"w": jnp.ones(3), "n": jnp.int32(0)}, scale
    findings = found(jax.jit(scaled), *begin)
    again, before = jax.jit(lambda *args: scaled(*seen(args))), SEEN.count
    for _ in range(3):
        begin = again(*begin)
    assert len(findings) == count == SEEN.count - before - 1
    for finding in findings:
        assert (finding.kind, finding.severity, finding.path) == ("retrace", "medium", "scale")
        assert (finding.file, finding.line) == (__file__, inspect.getsourcelines(scaled)[1])
        assert finding.figures["before"] == "weak float32[]" and finding.figures["after"] == "float32[]"
        assert "dtype=jnp.float32" in finding.advice


@pytest.mark.parametrize("jit", [jax.jit, filter_jit], ids=["jax", "partax"])
def test_an_array_inside_of_an_argument_is_found_by_its_path(jit: Any) -> None:
    def step(state: Any, x: Any) -> Any:
        return {"w": state["w"] + x, "n": state["n"] + jnp.int32(1), "half": state["half"].astype(jnp.float32) * 2}

    begin = {"w": jnp.ones(3), "n": jnp.int32(0), "half": jnp.ones(4, jnp.float16)}
    (finding,) = found(jit(step), begin, floats(3))
    assert finding.path == "state['half']" and ".astype(jnp.float16)" in finding.advice
    assert finding.figures["before"] == "float16[4]" and finding.figures["after"] == "float32[4]"


def appended(x: Any, cache: Any) -> Any:
    cache = jax.tree.map(lambda it: jnp.concatenate([it, x[None]]), cache)
    return x * 2, cache


def padded(x: Any) -> Any:
    x = jnp.concatenate([x, jnp.ones((1, 3))])
    return x  # noqa: RET504


@pytest.mark.parametrize(
    ("function", "args", "paths"),
    [
        (appended, (floats(3), floats(4, 3)), ["cache"]),
        (lambda *args: appended(*args), (floats(3), (floats(4, 3), floats(4, 3))), ["args[1][0]"]),
        (padded, (floats(4, 3),), []),
    ],
)
def test_what_each_call_appends_to_grows_and_what_is_padded_does_not(function: Any, args: Any, paths: Any) -> None:
    assert [(it.path, it.severity) for it in found(jax.jit(function), *args)] == [(path, "high") for path in paths]


def test_a_static_number_with_the_name_of_a_counter_is_found() -> None:
    def counts(x: Any, step: Any) -> Any:
        return x + step

    (finding,) = found(filter_jit(counts), floats(3), 7)
    assert (finding.path, finding.figures["value"]) == ("step", 7) and 'dynamic=("step",)' in finding.advice
    assert found(filter_jit(counts, dynamic=("step",)), floats(3), 7) == []
    assert found(jax.jit(counts), floats(3), 7) == []
    assert found(filter_jit(lambda x, size: x + size), floats(3), 7) == []


def test_a_counter_is_known_by_its_place() -> None:
    def step(state: Any, count: int, x: Any) -> Any:
        return {"a": state["a"] + x, "b": state["b"]}, count + 1

    def resized(state: Any, size: int, x: Any) -> Any:
        return {"a": state["a"] + x, "b": state["b"]}, size * 4

    state = {"a": floats(3), "b": floats(3)}
    (finding,) = found(filter_jit(step), state, 7, jnp.ones(3))
    assert (finding.path, finding.severity, finding.figures["value"]) == ("count", "high", 7)
    assert "comes back as 8" in finding.message and 'dynamic=("count",)' in finding.advice
    assert found(filter_jit(resized), state, 7, jnp.ones(3)) == []
    assert found(filter_jit(lambda x, n: (x * n, n)), floats(3), 4) == []


class Train(eqx.Module):
    weight: jax.Array
    step: Any
    rate: Any = eqx.field(static=True, default=0.5)


def counted(state: Any, x: Any) -> Any:
    return {**state, "step": state["step"] + 1, "w": state["w"] + x}, x


def in_a_module(train: Train, x: Any) -> Any:
    return eqx.tree_at(lambda it: (it.weight, it.step), train, (train.weight + x, train.step + 1))


def to_an_array(state: Any, x: Any) -> Any:
    return {"w": state["w"] + x, "step": jnp.asarray(state["step"]) + 1}


def from_none(state: Any, x: Any) -> Any:
    return {"w": state["w"] + x, "momentum": x if state["momentum"] is None else state["momentum"] + x}


W, X = jnp.ones(3), jnp.ones(3)
# A step, its state, how the state goes on, and the path, both values and the severity.
FOUND: dict[str, tuple[Callable[..., Any], Any, Callable[[Any], Any], tuple[str, str, str, str]]] = {
    "a dictionary": (counted, {"step": 0, "w": W}, lambda it: it[0], ("state['step']", "0", "1", "high")),
    "a module": (in_a_module, Train(W, 3), lambda it: it, ("train.step", "3", "4", "high")),
    "a number that becomes an array": (to_an_array, {"w": W, "step": 0}, lambda it: it,
        ("state['step']", "0", "weak int32[]", "medium")),
    "a static field": (lambda train, x: Train(train.weight + x, 3, train.rate * 2), Train(W, 3), lambda it: it,
        ("train.rate", "0.5", "1.0", "high")),
    "a flag": (lambda state, x: {"w": state["w"] + x, "first": False}, {"w": W, "first": True}, lambda it: it,
        ("state['first']", "True", "False", "medium")),
    "None that becomes an array": (from_none, {"w": W, "momentum": None}, lambda it: it,
        ("state['momentum']", "None", "float32[3]", "medium")),
}  # fmt: skip


@pytest.mark.parametrize(
    "jit",
    [partax.filter_jit, eqx.filter_jit, partax.nnx.jit, nnx.jit, jax.jit],
    ids=["partax", "Equinox", "nnx of partax", "nnx", "jax"],
)
@pytest.mark.parametrize("name", FOUND)
def test_each_kind_of_state_is_found(name: str, jit: Any) -> None:
    function, state, _, (path, before, after, severity) = FOUND[name]
    if (jit is nnx.jit and name != "a dictionary") or (jit is jax.jit and "None" not in name and "field" not in name):
        pytest.skip("its state is traced")
    [finding] = found(jit(function), state, X)
    assert (finding.kind, finding.path, finding.severity) == ("retrace", path, severity)
    assert (finding.figures["before"], finding.figures["after"]) == (before, after)
    assert finding.advice.startswith("Begin with")


def masked(x: Any, mask: Any) -> Any:
    weights = jnp.ones(3) if mask is None else mask
    return x * weights, weights


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


AB, STATE = {"a": floats(3), "b": floats(3)}, {"w": W, "step": 3, "name": "a"}
SILENT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "another dtype": (jax.jit(lambda x: x.astype("float16") + 1), (floats(8),)),
    "no float": (jax.jit(lambda x: (x * 2.0).astype("int32")), (1.0,)),
    "two results": (jax.jit(lambda x, y: (x.astype("float16"), y.sum())), (floats(8), floats(8))),
    "all of a dictionary": (jax.jit(lambda x: {name: x[name].astype("float16") for name in x}), (AB,)),
    "a model": (eqx.filter_jit(lambda model, x: model(x.astype("float16"))),
        (eqx.nn.MLP(3, 3, 4, 1, key=jax.random.key(0)), floats(3))),
    "None that other results take the place of": (jax.jit(masked), (X, None)),
    "a gradient": (jax.grad(lambda rates, x: jnp.sum(rates["a"] * x + rates["b"])), ({"a": 1.0, "b": 2.0}, X)),
    "state that stays": (partax.filter_jit(healthy), (STATE, X)),
    "a number of another name": (partax.filter_jit(lambda config, x: (x * config["rate"], {"rate": 7})),
        ({"rate": 2.0}, X)),
    "a number that jax traces": (jax.jit(counted), ({"step": 0, "w": W}, X)),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_what_goes_on_as_it_is_or_not_at_all_is_silent(name: str) -> None:
    function, args = SILENT[name]
    assert found(function, *args) == []
