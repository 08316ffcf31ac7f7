"""Guards the promise that arguments that the result replaces are found where they are large, with advice that works."""

import inspect
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from examining import findings_of, floats
from flax import nnx

import partax

LARGE = (64 << 20) // 4  # numbers of a float32 array that is just large enough


def donations(function: Any, *args: Any, memory_limit: int = 1 << 50) -> list[partax.reports.Finding]:
    return findings_of("donation", function, *args, memory_limit=memory_limit)


def sgd(params: Any, x: Any) -> Any:
    loss, slope = jax.value_and_grad(lambda params: jnp.mean(jnp.tanh(params["w"] * x) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, slope), loss


def test_a_large_argument_that_comes_back_is_found_at_its_function() -> None:
    (finding,) = donations(jax.jit(sgd), {"w": floats(LARGE)}, floats())
    assert (finding.severity, finding.path, finding.figures["bytes"]) == ("low", "params", 4 * LARGE)
    assert (finding.file, finding.line) == (__file__, inspect.getsourcelines(sgd)[1])
    (finding,) = donations(jax.jit(sgd), {"w": floats(LARGE)}, floats(), memory_limit=8 * LARGE)
    assert finding.severity == "medium"


def test_a_small_or_donated_argument_is_not() -> None:
    assert donations(jax.jit(sgd), {"w": floats(LARGE - 1)}, floats()) == []
    assert donations(jax.jit(sgd, donate_argnums=0), {"w": floats(LARGE)}, floats()) == []
    assert donations(partax.filter_jit(sgd, donate=("params",)), {"w": floats(LARGE)}, floats()) == []


def test_what_the_result_does_not_replace_is_not() -> None:
    assert donations(lambda model, x: x + model, floats(), floats(LARGE)) == []
    assert donations(lambda x: jnp.sort(x), floats(LARGE)) == []
    assert donations(lambda x: x.astype("float16") + 1, floats(LARGE)) == []


def test_a_model_and_the_state_of_its_optimizer_come_back() -> None:
    optimizer = optax.adam(1e-3)

    def step(weights: Any, state: Any, x: Any) -> Any:
        slope = jax.grad(lambda weights: jnp.mean(jnp.tanh(x @ weights) ** 2))(weights)
        updates, state = optimizer.update(slope, state)
        return optax.apply_updates(weights, updates), state

    weights = floats(4096, 4096)
    (finding,) = donations(partax.filter_jit(step), weights, jax.eval_shape(optimizer.init, weights), floats(8, 4096))
    assert finding.path == "weights, state" and 'donate=("weights", "state")' in finding.advice


class Pair(nnx.Module):
    def __init__(self) -> None:
        self.first, self.second = nnx.Param(jnp.zeros(LARGE)), nnx.Param(jnp.zeros(LARGE))


def add_in_place(pair: Any) -> None:
    pair.first[...] += 1
    pair.second[...] += pair.first[...]


def add(state: Any, x: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf + x, state)


@pytest.mark.parametrize(
    "jit", [partax.filter_jit, jax.jit, nnx.jit, partax.nnx.jit], ids=["partax", "jax", "nnx", "partax.nnx"]
)
def test_a_call_that_follows_the_advice_works(jit: Any) -> None:
    is_of_flax = jit in (nnx.jit, partax.nnx.jit)
    state = {"a": jnp.zeros(LARGE), "b": jnp.zeros(LARGE)}
    function, arguments = (add_in_place, (Pair(),)) if is_of_flax else (add, (state, jnp.ones(())))
    (finding,) = donations(jit(function), *arguments)
    option, argument = re.findall(r'(donate\w*)=\("(\w+)",\)', finding.advice)[0]
    donating = jit(function, **{option: (argument,)})
    assert donations(donating, *arguments) == []
    before = [leaf for leaf in jax.tree.leaves(arguments[0]) if leaf.size > 1]
    donating(*arguments)
    assert before and all(leaf.is_deleted() for leaf in before)


ZEROS = jnp.zeros(LARGE)


@pytest.mark.parametrize(
    ("jit", "arguments", "first", "second"),
    [
        (partax.filter_jit, ({"a": ZEROS, "b": ZEROS},), "state['a']", "state['b']"),
        (jax.jit, ({"a": {"c": ZEROS}, "b": [ZEROS]},), "state['a']['c']", "state['b'][0]"),
        (eqx.filter_jit, ({"a": ZEROS, "b": ZEROS},), "state['a']", "state['b']"),
        (partax.filter_jit, (ZEROS, ZEROS), "state", "x"),
    ],
)
def test_of_one_array_in_two_places_the_advice_says_so_first(
    jit: Any, arguments: tuple[Any, ...], first: str, second: str
) -> None:
    (finding,) = donations(jit(add), *arguments, *[jnp.ones(())][: 2 - len(arguments)])
    assert f"`{first}` and `{second}` are the same array" in finding.advice and "jnp.copy" in finding.advice


class Model(eqx.Module):
    first: jax.Array
    second: jax.Array

    def __call__(self, x: Any) -> Any:
        return Model(self.first + x, self.second * x)


def test_equinox_and_what_is_called_itself_donate_all() -> None:
    (finding,) = donations(eqx.filter_jit(add), {"a": floats(LARGE)}, floats())
    assert 'eqx.filter_jit(donate="all")' in finding.advice
    (finding,) = donations(partax.filter_jit(Model(jnp.zeros(LARGE), jnp.zeros(LARGE))), jnp.ones(()))
    assert 'donate="all"' in finding.advice
