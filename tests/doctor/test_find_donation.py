"""Guards the promise that arguments that the result replaces are found where they are large, with advice that works."""

import inspect
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import partax
from partax import nnx as fast_nnx

LARGE = (64 << 20) // 4  # numbers of a float32 array that is just large enough


def floats(*shape: int, dtype: Any = "float32") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def large() -> jax.Array:
    return jnp.zeros(LARGE)


def donations(function: Any, *args: Any, **options: Any) -> list[partax.reports.Finding]:
    given: dict[str, Any] = {"memory_limit": 1 << 50, **options}
    found = partax.doctor(function, *args, **given).findings
    return [finding for finding in found if finding.kind == "donation"]


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


class Pair(nnx.Module):
    def __init__(self, first: jax.Array, second: jax.Array) -> None:
        self.first, self.second = nnx.Param(first), nnx.Param(second)


def add_in_place(pair: Any) -> None:
    pair.first[...] += 1
    pair.second[...] += pair.first[...]


def add(state: Any, x: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf + x, state)


# The module that the advice names; how it is called; and what is compiled.
WRAPPERS: dict[str, tuple[Any, Any]] = {
    "partax": (partax.filter_jit, add), "jax": (jax.jit, add), "nnx": (nnx.jit, add_in_place),
    "partax.nnx": (fast_nnx.jit, add_in_place),
}  # fmt: skip


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_call_that_follows_the_advice_works(name: str) -> None:
    jit, function = WRAPPERS[name]
    arguments = (Pair(large(), large()),) if function is add_in_place else ({"a": large(), "b": large()}, jnp.ones(()))
    (finding,) = donations(jit(function), *arguments)
    option, argument = re.findall(r'(donate\w*)=\("(\w+)",\)', finding.advice)[0]
    assert ("partax.nnx.jit(" in finding.advice) == (name == "partax.nnx")
    donating = jit(function, **{option: (argument,)})
    assert donations(donating, *arguments) == []
    before = [leaf for leaf in jax.tree.leaves(arguments[0]) if leaf.size > 1]
    donating(*arguments)
    assert before and all(leaf.is_deleted() for leaf in before)


def test_arguments_that_cannot_be_named_are_donated_by_position() -> None:
    (finding,) = donations(jax.jit(lambda *arrays: [it + 1 for it in arrays]), floats(LARGE), floats(LARGE))
    assert "donate_argnums=(0, 1)" in finding.advice
    (finding,) = donations(jax.jit(lambda x, /: x + 1), floats(LARGE))
    assert "donate_argnums=(0,)" in finding.advice


def test_of_equinox_all_arguments_are_donated() -> None:
    (finding,) = donations(eqx.filter_jit(add), {"a": floats(LARGE)}, floats())
    assert 'eqx.filter_jit(donate="all")' in finding.advice


class Model(eqx.Module):
    first: jax.Array
    second: jax.Array

    def __call__(self, x: Any) -> Any:
        return Model(self.first + x, self.second * x)


def test_what_is_called_itself_is_donated_with_all() -> None:
    (finding,) = donations(partax.filter_jit(Model(large(), large())), jnp.ones(()))
    assert 'filter_jit(donate="all")' in finding.advice
    model = Model(large(), large())
    partax.filter_jit(model.__call__, donate="all")(jnp.zeros(()))
    assert model.first.is_deleted() and model.second.is_deleted()


ZEROS = large()
PARAMS = {"w": large(), "b": {"c": jnp.zeros(3)}}
ADAM: Any = optax.adam(1e-3).init(PARAMS)
# Calls with one array in two places, of a function that is to be told to donate, and the two places.
SHARED: dict[str, tuple[Any, tuple[Any, ...], str, str]] = {
    "a dict": (partax.filter_jit(add), ({"a": ZEROS, "b": ZEROS}, jnp.ones(())), "state['a']", "state['b']"),
    "nested dicts": (
        jax.jit(add), ({"a": {"c": ZEROS}, "b": [ZEROS]}, jnp.ones(())), "state['a']['c']", "state['b'][0]",
    ),
    "two arguments": (
        partax.filter_jit(lambda params, average: (params * 0.9, average * 0.9 + params * 0.1)), (ZEROS, ZEROS),
        "params", "average",
    ),
    "an argument that is not donated": (
        partax.filter_jit(lambda x, fixed: x + fixed.sum()), (ZEROS, ZEROS), "x", "fixed",
    ),
    "another array with its buffer": (
        partax.filter_jit(add), ({"a": ZEROS, "b": jax.device_put(ZEROS, jax.devices()[0])}, jnp.ones(())),
        "state['a']", "state['b']",
    ),
    "the state of an optimizer": (
        partax.filter_jit(lambda state, x: jax.tree.map(lambda leaf: leaf + x.astype(leaf.dtype), state)),
        ((ADAM[0]._replace(nu=ADAM[0].mu), ADAM[1]), jnp.ones(())), "state[0].mu['w']", "state[0].nu['w']",
    ),
    "an object that is called": (
        partax.filter_jit(Model(ZEROS, ZEROS)), (jnp.ones(()),), "Model.first", "Model.second",
    ),
    "an nnx module": (fast_nnx.jit(add_in_place), (Pair(ZEROS, ZEROS),), "pair.first.value", "pair.second.value"),
    "Equinox": (eqx.filter_jit(add), ({"a": ZEROS, "b": ZEROS}, jnp.ones(())), "state['a']", "state['b']"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_of_one_array_in_two_places_the_advice_says_so_first(name: str) -> None:
    function, arguments, first, second = SHARED[name]
    (finding,) = donations(function, *arguments)
    assert f"`{first}` and `{second}` are the same array" in finding.advice
    assert re.search("jnp.copy.*; then donate (it|them): ", finding.advice)


def test_another_array_in_two_places_is_not_spoken_of() -> None:
    one = jnp.ones(())
    (finding,) = donations(partax.filter_jit(lambda x, y, z: x + y + z), large(), one, one)
    assert "same array" not in finding.advice


@pytest.mark.parametrize("jit", [partax.filter_jit, fast_nnx.jit], ids=["partax", "partax.nnx"])
def test_a_call_that_donates_one_array_twice_is_found_before_it_fails(jit: Any) -> None:
    step, array = jit(add, donate=("state",)), jnp.ones(3)
    (finding,) = donations(step, {"a": array, "b": array}, jnp.ones(()))
    assert finding.severity == "high"
    assert finding.message.startswith("`state['a']` and `state['b']` are the same array, which the call donates")
    with pytest.raises(jax.errors.JaxRuntimeError):
        step({"a": array, "b": array}, jnp.ones(()))


def test_an_error_of_a_double_donation_is_told_once_with_five_places() -> None:
    one, pairs = jnp.ones(3), [jnp.ones(3) for _ in range(20)]
    step = partax.filter_jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate="all")
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        step([one] * 30)
    (note,) = [note for note in caught.value.__notes__ if note.startswith("partax")]
    assert note.count("`state[") == 5 and "`state[4]` and 25 more are one array" in note
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        step([pairs, pairs])
    (note,) = [note for note in caught.value.__notes__ if note.startswith("partax")]
    assert note.count("`state[") == 2 and "so it is with 19 more arrays" in note
    assert str(caught.value).count("state[") == 0
