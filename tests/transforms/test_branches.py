"""Guards the promise that branches of any trees return what the chosen function returns: its arrays, and the static
part in which all agree; Python numbers and weak types settle."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from trees import Layer, array, assert_close, double

BOTH = pytest.mark.parametrize("pred", [True, False, np.bool_(True), jnp.asarray(False)], ids=repr)


def operands() -> tuple[Any, ...]:
    return {"layer": Layer(array(2, 2), array(2)), "name": "x", "f": double}, jnp.ones(2), 0.5


def first(tree: dict[str, Any], x: jax.Array, scale: float) -> Any:
    assert tree["name"] == "x" and type(scale) is float
    return {**tree, "out": tree["layer"](x) * scale, "kind": ("k", 1)}


def second(tree: dict[str, Any], x: jax.Array, scale: float) -> Any:
    return {**tree, "out": tree["f"](x), "kind": ("k", 1)}


@partax.filter_jit
def jitted(pred: Any, *given: Any) -> Any:
    return partax.filter_cond(pred, first, second, *given)


@BOTH
def test_a_cond_is_the_function_that_is_chosen(pred: Any) -> None:
    found = jitted(pred, *operands())
    expected = (first if pred else second)(*operands())
    assert_close(found.pop("out"), expected.pop("out"))
    assert eqx.tree_equal(found, expected)
    assert found["f"] is double


def test_a_switch_is_the_function_that_is_chosen_and_clamps_as_jax_does() -> None:
    branches = [lambda x, k, i=i: ({"a": x["a"] * i + k, "s": x["s"]}, i) for i in range(3)]
    for index in (-1, 0, 1, jnp.int32(2), 7):
        tree, number = partax.filter_switch(index, branches, {"a": jnp.ones(2), "s": "s"}, 2)
        chosen = min(max(int(index), 0), 2)
        np.testing.assert_array_equal(tree["a"], [chosen + 2.0] * 2)
        assert tree["s"] == "s" and number == chosen


def test_gradients_and_vmap_reach_operands_and_what_functions_hold() -> None:
    def f(layer: Layer, x: jax.Array) -> jax.Array:
        out = partax.filter_cond(x[0] > 0, lambda t: (layer(t["x"]), "s"), lambda t: (t["x"] ** 2, "s"), {"x": x})
        return jnp.sum(out[0])

    grad_of_both = partax.filter_jit(partax.filter_grad(lambda both: f(*both)))
    layer = Layer(array(2, 2), array(2))
    for x in (jnp.array([0.5, 0.1]), jnp.array([-0.5, 0.1])):

        def plain(both: Any, taken: bool = bool(x[0] > 0)) -> jax.Array:
            layer, x = both
            return jnp.sum(layer(x) if taken else x**2)

        expected, found = partax.filter_grad(plain)((layer, x)), grad_of_both((layer, x))
        assert_close(found[0].weight, jnp.zeros((2, 2)) if expected[0] is None else expected[0].weight)
        assert_close(found[1], expected[1])
    xs = jnp.array([[0.5, 0.1], [-0.5, 0.1]])
    expected = jnp.stack([jnp.sum(layer(xs[0])), jnp.sum(xs[1] ** 2)])
    assert_close(jax.vmap(lambda x: f(layer, x))(xs), expected)


def test_a_module_is_a_branch() -> None:
    layer = Layer(array(2, 2), array(2))
    assert_close(partax.filter_cond(True, layer, lambda x: x, jnp.ones(2)), layer(jnp.ones(2)))


# What the branches return, and the type of the result; None: what the first one returned, itself.
AGREE: dict[str, tuple[list[Any], str | None]] = {
    "equal numbers": ([1, 1, 1], None),
    "numbers": ([1, 1, 0], "~int32[]"),
    "an integer and a float": ([1, 0.5, 2], "~float32[]"),
    "a number and an array": ([1, jnp.float32(2), 0.5], "float32[]"),
    "an array and a number": ([jnp.float32(2), 1, 1], "float32[]"),
    "weak integers and a strong float": ([jnp.asarray(1), jnp.float32(2), jnp.asarray(2)], "float32[]"),
    "a weak float and bfloat16": ([0.5, jnp.bfloat16(2), jnp.asarray(1)], "bfloat16[]"),
    "a bool and an integer": ([True, 2, 1], "~int32[]"),
}


@pytest.mark.parametrize("name", AGREE)
@pytest.mark.parametrize("index", [0, 2])
def test_numbers_and_weak_types_settle(name: str, index: int) -> None:
    values, expected = AGREE[name]
    found = partax.filter_switch(index, [lambda v=v: {"v": v, "s": "s"} for v in values])
    assert found["s"] == "s" and found["v"] == values[index]
    if expected is None:
        assert type(found["v"]) is type(values[0])
    else:
        assert str(jax.typeof(found["v"])) == expected


def test_strong_types_do_not_settle() -> None:
    for one, other, told in (
        (jnp.float32(1), jnp.int32(1), "float32[] of true_fun, int32[] of false_fun"),
        (0.5, jnp.int32(1), "0.5 of true_fun, int32[] of false_fun"),
        (jnp.int32(1), jnp.asarray(0.5), "int32[] of true_fun, float32[] of weak type of false_fun"),
    ):
        with pytest.raises(TypeError) as raised:
            partax.filter_cond(True, lambda v=one: [v], lambda v=other: [v])
        assert str(raised.value).startswith(f"`result[0]`: {told}")


def test_a_strong_type_is_not_cast_to_what_numbers_have_settled_to() -> None:
    branches = [lambda: [1], lambda: [0.5], lambda: [jnp.int32(3)]]
    with pytest.raises(TypeError) as raised:
        partax.filter_switch(0, branches)
    told = "float32[] of weak type of branches[0], int32[] of branches[2]"
    assert str(raised.value).startswith(f"`result[0]`: {told}")


def test_without_jit_only_the_chosen_function_runs() -> None:
    with jax.disable_jit():
        found = partax.filter_cond(True, lambda x: (x, "s"), lambda x: pytest.fail("was run"), jnp.ones(()))
    assert found[1] == "s" and found[0] == 1.0
