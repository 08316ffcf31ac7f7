"""Guards the promise that partition, filter, combine, apply_updates and the gradients take what Equinox's take."""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
import partax.equinox
from partax import by_path, is_array, is_inexact_array
from partition_reference import assert_identical
from transformed import assert_close_trees
from trees import Layer, Pair, array


def tree() -> Any:
    return {"a": [array(2), 1, None], "b": Pair("x", array(1)), "c": Layer(array(2), np.ones(1))}


def is_pair(node: Any) -> bool:
    return isinstance(node, Pair)


SENTINEL = object()


@pytest.mark.parametrize("replace", [None, SENTINEL, np.zeros(2)], ids=lambda replace: type(replace).__name__)
def test_partition_of_partax_equinox_has_replace_and_is_leaf_by_position(replace: Any) -> None:
    pytree = tree()
    expected = eqx.partition(pytree, is_array, replace, is_pair)
    assert_identical(partax.equinox.partition(pytree, is_array, replace, is_pair), expected)
    assert_identical(partax.partition(pytree, is_array, replace=replace, is_leaf=is_pair), expected)
    with pytest.raises(TypeError, match=r"among the filters.*`replace=` and `is_leaf=` go by name"):
        partax.partition(pytree, is_array, replace)


FILTERS: dict[str, Any] = {
    "predicate": is_inexact_array,
    "function": lambda leaf: leaf == 1,
    "bool": False,
    "type": int,
    "union": int | str,
    "path": by_path("b/*"),
    "prefix": {"a": True, "b": False, "c": is_array},
    "prefix that can be called": Layer(str, True, False),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_is_a_filter_wherever_it_stands(name: str) -> None:
    pytree = tree()["c"] if "called" in name else tree()
    parts = partax.partition(pytree, jax.Array, FILTERS[name])
    assert len(parts) == 3
    assert_identical(partax.combine(*parts), pytree)
    assert partax.partition({}, {}, {}) == ({}, {}, {})


@pytest.mark.parametrize("inverse", [False, True])
def test_filter_by_position(inverse: bool) -> None:
    pytree = tree()
    given: Any
    for given in ((), (inverse,), (inverse, 0), (inverse, SENTINEL, is_pair)):
        assert_identical(partax.filter(pytree, is_array, *given), eqx.filter(pytree, is_array, *given))
    assert list(inspect.signature(partax.filter).parameters) == list(inspect.signature(eqx.filter).parameters)


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


def test_an_addition_that_fails_raises_its_own_error():
    with pytest.raises(TypeError, match=r"unsupported operand|can only concatenate"):
        partax.apply_updates(["text"], [1])
