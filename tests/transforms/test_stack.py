"""Guards the promise that layers which are equal but for their arrays become one tree and come back, and that any other
difference is an error with its path and both values."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from trees import Layer, array, assert_same, double


def layer(i: int, **changes: Any) -> Any:
    weight = changes.pop("weight", jnp.full((2, 3), i, jnp.float32))
    given = {"bias": np.full(2, i, np.float32), "rate": 0.5, "activation": jnp.tanh, **changes}
    return {"a": Layer(weight, **given), "b": [jax.random.key(i), jnp.bfloat16(i), None], "f": double}


def test_stack_and_unstack_are_one_another_s_inverse() -> None:
    layers = [layer(i) for i in range(3)]
    stacked = partax.stack(layers)
    np.testing.assert_array_equal(stacked["a"].weight, np.stack([np.full((2, 3), i) for i in range(3)]))
    assert stacked["a"].bias.shape == (3, 2) and stacked["b"][0].shape == (3,)
    assert stacked["b"][1].dtype == jnp.bfloat16
    assert stacked["a"].rate == 0.5 and stacked["a"].activation is jnp.tanh and stacked["f"] is double
    found = partax.unstack(stacked)
    assert type(found) is tuple
    for one, other in zip(found, layers, strict=True):
        assert_same(one, other)
    assert_same(partax.stack(iter(layers)), stacked)


def test_they_work_under_jit_vmap_and_grad() -> None:
    one, other = layer(1)["a"], layer(2)["a"]

    def total(layers: Any) -> jax.Array:
        stacked = partax.stack(layers)
        first, second = partax.unstack(stacked)
        return jnp.sum(stacked.weight[0] * 3 + first.weight) + jnp.sum(second.bias)

    grads = partax.filter_jit(partax.filter_grad(total))([one, other])
    np.testing.assert_array_equal(grads[0].weight, jnp.full((2, 3), 4.0))
    np.testing.assert_array_equal(grads[1].weight, jnp.zeros((2, 3)))
    np.testing.assert_array_equal(grads[1].bias, jnp.ones(2))
    found = jax.vmap(lambda x: partax.stack([{"x": x}, {"x": x * 2}])["x"])(jnp.ones(4))
    np.testing.assert_array_equal(found, jnp.tile(jnp.array([1.0, 2.0]), (4, 1)))


DIFFERENCES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a static field": ({"scale": 3}, ".scale", "found 3, expected 2"),
    "a number": ({"rate": 0.1}, ".rate", "found 0.1, expected 0.5"),
    "a number and an array": ({"rate": jnp.ones(())}, ".rate", "found float32[], expected 0.5"),
    "a function": ({"activation": len}, ".activation", "found <built-in function len>, expected <PjitFunction of"),
    "a missing array": ({"bias": None}, ".bias", "found None, expected float32[2]"),
    "a shape": ({"weight": array(2)}, ".weight", "found float32[2], expected float32[2,3]"),
    "a dtype": ({"weight": jnp.ones((2, 3), int)}, ".weight", "found int32[2,3], expected float32[2,3]"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_told_by_its_path(name: str) -> None:
    changes, path, told = DIFFERENCES[name]
    with pytest.raises(ValueError) as raised:
        partax.stack([layer(0), layer(1), layer(2, **changes), layer(3, scale=9)])
    assert str(raised.value).startswith(f"`layers[2]['a']{path}`: {told}")
    assert "as `layers[0]` has" in str(raised.value)


def test_what_cannot_be_stacked_or_unstacked_is_told() -> None:
    with pytest.raises(ValueError, match="`layers`: found none"):
        partax.stack([])
    with pytest.raises(ValueError, match="`tree`: found no array"):
        partax.unstack({"a": 1})
    told = r"`tree\['b'\]`: found float32\[2\], expected a leading axis of length 3, as `tree\['a'\]` has"
    with pytest.raises(ValueError, match=told):
        partax.unstack({"a": jnp.ones((3, 2)), "b": jnp.ones(2)})
    with pytest.raises(ValueError, match=r"`tree\[1\]`: found float32\[\], expected an array with a leading axis"):
        partax.unstack([jnp.ones(2), np.float32(1)])


def test_none_is_a_layer_without_arrays() -> None:
    assert partax.stack([None, None]) is None
    assert eqx.tree_equal(partax.stack([Layer("w"), Layer("w")]), Layer("w")) is True
