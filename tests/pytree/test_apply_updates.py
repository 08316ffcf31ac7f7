"""Guards the promise that apply_updates adds updates to a model leaf by leaf: None leaves a leaf as
it is, updates may be a prefix of the model, and types and structure stay the model's."""

import collections

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partition_reference import assert_identical

Pair = collections.namedtuple("Pair", ["first", "second"])


class Vector(eqx.Module):
    """A module that knows how to be added to."""

    values: jax.Array
    unit: str = eqx.field(static=True)

    def __add__(self, other):
        return Vector(self.values + other, self.unit)


def mlp(seed=0):
    return eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(seed))


@pytest.mark.parametrize(
    ("model", "updates"),
    [
        ([jnp.ones(2), "text", len, None, {"a": 1}], [None, None, None, None, {"a": None}]),
        ([mlp(), [1]], [None, [None]]),
        (mlp(), None),
    ],
    ids=["leaves", "a subtree", "all"],
)
def test_where_the_updates_have_none_the_model_has_the_identical_objects(model, updates):
    assert_identical(partax.apply_updates(model, updates), model)


def test_updates_are_added_leaf_by_leaf():
    model = (jnp.arange(3.0), [np.ones(2), 5, 2.5], Pair(1j, None))
    updates = (jnp.ones(3), [np.full(2, 2.0), 1, 0.5], Pair(2, None))
    result = partax.apply_updates(model, updates)
    np.testing.assert_array_equal(result[0], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(result[1][0], [3.0, 3.0])
    assert result[1][1:] == [6, 3.0]
    assert [type(x) for x in result[1][1:]] == [int, float]
    assert result[2] == Pair(2 + 1j, None)
    assert type(result[2]) is Pair
    assert type(result[1][0]) is np.ndarray
    assert isinstance(result[0], jax.Array)


def test_an_update_above_a_subtree_is_added_by_the_subtree_as_equinox_does():
    model = [Vector(jnp.ones(2), "m"), 3]
    expected = eqx.apply_updates(model, [jnp.float32(2), None])
    result = partax.apply_updates(model, [jnp.float32(2), None])
    assert type(result[0]) is Vector
    assert result[0].unit == "m"
    np.testing.assert_array_equal(result[0].values, expected[0].values)
    assert result[1] == 3


def test_updates_that_are_not_a_prefix_are_a_value_error():
    for model, updates in [([1, 2], [1]), ([1], (1,)), ({"a": 1}, {"b": 1}), (1, [1])]:
        for apply in (partax.apply_updates, eqx.apply_updates):
            with pytest.raises(ValueError):
                apply(model, updates)


def test_an_addition_that_fails_raises_its_own_error():
    with pytest.raises(TypeError, match=r"unsupported operand|can only concatenate"):
        partax.apply_updates(["text"], [1])


def test_a_weak_update_keeps_the_parameter_s_dtype():
    model = {"w": jnp.ones(2, jnp.bfloat16)}
    result = partax.apply_updates(model, {"w": 0.5})
    assert result["w"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(result["w"].astype(jnp.float32), [1.5, 1.5])
