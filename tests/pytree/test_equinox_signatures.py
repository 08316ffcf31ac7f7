"""Guards the promise that partition, filter, combine, apply_updates and the gradients take what Equinox's take."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
import partax.equinox
from partax import by_path, is_array
from partition_reference import assert_identical
from transformed import assert_close_trees
from trees import Layer, Pair, array


def tree() -> Any:
    return {"a": [array(2), 1, None], "b": Pair("x", array(1)), "c": Layer(array(2), np.ones(1))}


def is_pair(node: Any) -> bool:
    return isinstance(node, Pair)


def test_replace_and_is_leaf_by_position() -> None:
    pytree, replace = tree(), object()
    assert_identical(partax.filter(pytree, is_array, True, 0, is_pair), eqx.filter(pytree, is_array, True, 0, is_pair))
    expected = eqx.partition(pytree, is_array, replace, is_pair)
    assert_identical(partax.equinox.partition(pytree, is_array, replace, is_pair), expected)
    assert_identical(partax.partition(pytree, is_array, replace=replace, is_leaf=is_pair), expected)
    with pytest.raises(TypeError, match=r"among the filters.*`replace=`"):
        partax.partition(pytree, is_array, None)


TRANSFORMS = [(getattr(partax, name), getattr(eqx, name)) for name in ("filter_grad", "filter_value_and_grad")]
Z = jnp.asarray(1 + 2j)


@pytest.mark.parametrize(("ours", "theirs"), TRANSFORMS)
def test_holomorphic(ours: Any, theirs: Any) -> None:
    def function(pytree: Any) -> Any:
        return pytree["z"] ** 2 * pytree["number"] * pytree["steps"]

    pytree = {"z": Z, "number": 2.0, "steps": jnp.arange(3)[1], "name": "x"}
    make = lambda f: f(function, holomorphic=True)
    assert_close_trees(make(ours)(pytree), make(theirs)(pytree))
    with pytest.raises(TypeError, match="holomorphic=True requires inputs with complex dtype"):
        make(ours)({**pytree, "number": jnp.float32(2)})
    only_z = ours(function, holomorphic=True, wrt=by_path("z"))({**pytree, "number": jnp.float32(2)})
    assert_close_trees(only_z, make(theirs)(pytree))
    with pytest.raises(TypeError, match="real-valued outputs"):
        ours(function)(pytree)


class Vector(eqx.Module):
    values: jax.Array

    def __add__(self, other):
        return Vector(self.values + other)


MLP = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
UPDATES = {
    "nothing": (MLP, None),
    "nothing of leaves and a subtree": ([jnp.ones(2), "text", len, None, {"a": MLP}], [None] * 5),
    "leaves": (
        (jnp.arange(3.0), [np.ones(2), 5, 2.5], Pair(1j, None)),
        (jnp.ones(3), [np.full(2, 2.0), 1, 0.5], Pair(2, None)),
    ),
    "a subtree": ([Vector(jnp.ones(2)), 3], [jnp.float32(2), None]),
    "a weak type": ({"w": jnp.ones(2, jnp.bfloat16)}, {"w": 0.5}),
}


@pytest.mark.parametrize(("model", "updates"), UPDATES.values(), ids=UPDATES)
def test_updates_are_added_as_by_equinox(model, updates):
    found, expected = (apply(model, updates) for apply in (partax.apply_updates, eqx.apply_updates))
    assert eqx.tree_equal(found, expected, typematch=True)
    for own, one, other in zip(*map(jax.tree.leaves, (model, found, expected)), strict=True):
        assert (one is own) is (other is own)


def test_updates_that_are_not_a_prefix_are_a_value_error():
    for model, updates in [([1, 2], [1]), ([1], (1,)), ({"a": 1}, {"b": 1}), (1, [1])]:
        for apply in (partax.apply_updates, eqx.apply_updates):
            with pytest.raises(ValueError):
                apply(model, updates)
    with pytest.raises(TypeError, match=r"unsupported operand|can only concatenate"):
        partax.apply_updates(["text"], [1])
