"""Guards the promise that `labels` names each leaf's group as `partition` would choose it, in the tree that
`optax.multi_transform` takes."""

import collections
import enum
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partax
from partax import any_of, by_path, is_array, is_inexact_array, not_
from trees import assert_close, assert_same

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose


class Group(enum.Enum):
    FAST = 1
    SLOW = 2


def model():
    return eqx.nn.Sequential(
        [
            eqx.nn.Linear(3, 4, key=jax.random.key(0)),
            eqx.nn.Lambda(jnp.tanh),
            eqx.nn.Linear(4, 4, key=jax.random.key(1)),
            eqx.nn.Lambda(jnp.tanh),
            eqx.nn.Linear(4, 2, key=jax.random.key(2)),
        ]
    )


# --- the tree of labels


@pytest.mark.parametrize(
    "filters",
    [
        (eqx.nn.Linear, is_array),
        (is_array, eqx.nn.Linear),
        (by_path("layers/2/**"), by_path("**/weight")),
        (any_of(by_path("**/bias"), eqx.nn.Lambda), not_(is_array)),
        (by_path("layers/0"), by_path(regex="weight$")),
        (),
    ],
    ids=repr,
)
def test_groups_are_those_of_partition(filters):
    tree, names = model(), [f"group {i}" for i in range(len(filters))]
    found = partax.labels(tree, dict(zip(names, filters, strict=True)), default="rest")
    parts = zip([*names, "rest"], partax.partition(tree, *filters), strict=True)
    assert_same(found, partax.combine(*(jax.tree.map(lambda _, name=name: name, part) for name, part in parts)))


@pytest.mark.parametrize(
    "label", ["name", "", 0, 1.5, True, Group.FAST, pytest.param(object(), id="object"), len, frozenset({1})], ids=str
)
def test_a_label_is_whatever_is_hashable_and_a_leaf(label):
    found = partax.labels({"x": 1, "y": 2}, {label: by_path("x")}, default="other")
    assert found["x"] is label
    found = partax.labels({"x": 1, "y": 2}, {"other": by_path("x")}, default=label)
    assert found["y"] is label


def test_is_leaf_makes_one_label_for_a_node():
    tree = {"a": [1, 2], "b": (3, [4])}
    found = partax.labels(tree, {"list": list, "int": int}, is_leaf=lambda node: isinstance(node, list))
    assert found == {"a": "list", "b": ("int", "list")}
    found = partax.labels(model(), {"linear": eqx.nn.Linear}, default="rest", is_leaf=lambda n: n is not None)
    assert found == "rest"


# --- errors


PAIR = collections.namedtuple("Pair", "a b")(1, 2)
WRONG = {
    "no group": (lambda: partax.labels({"a": 1, "b": ["x", {"c": 2.0}]}, {"int": int}), ValueError, "default"),
    "no group, by path": (
        lambda: partax.labels({"a": 1, "b": ["x", {"c": 2.0}]}, {"int": int}),
        ValueError,
        "no group takes `pytree['b'][0]`, `pytree['b'][1]['c']`;",
    ),
    "no group for the root": (lambda: partax.labels(3, {}), ValueError, "`pytree`;"),
    "no group for many": (lambda: partax.labels([*range(10_001)], {"x": by_path("7")}), ValueError, "and 9,995 more"),
    **{
        f"no mapping: {groups}": (lambda groups=groups: partax.labels([1], groups, default="x"), TypeError, "mapping")
        for groups in ([("a", int)], [int], int, "a", None, is_array)
    },
    **{
        f"a node as label: {label}": (lambda label=label: partax.labels([1], {label: int}), ValueError, repr(label))
        for label in (None, (), ("a", 1), PAIR)
    },
    **{
        f"a node as default: {label}": (
            lambda label=label: partax.labels([1], {"x": int}, default=label),
            ValueError,
            "default label",
        )
        for label in ((), ("a", 1), PAIR, ["x"])
    },
    "an array as default": (lambda: partax.labels([1], {"x": int}, default=np.ones(1)), TypeError, "hashed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_groups_and_labels_are_told(name):
    call, kind, words = WRONG[name]
    with pytest.raises(kind, match=re.escape(words)) as caught:
        call()
    assert len(str(caught.value)) < 400


# --- optax trains with them


def test_labels_may_stand_where_the_parameters_have_none():
    tree = {"a": jnp.ones(2), "activation": jnp.tanh, "steps": jnp.arange(2), "b": jnp.ones(2)}
    names = partax.labels(tree, {"a": by_path("a")}, default="rest")
    assert names == {"a": "a", "activation": "rest", "steps": "rest", "b": "rest"}
    optimizer = optax.multi_transform({"a": optax.sgd(1.0), "rest": optax.adam(1.0)}, names)
    params = partax.filter(tree, is_inexact_array)
    state = optimizer.init(params)
    gradient = {"a": jnp.ones(2), "activation": None, "steps": None, "b": None}
    updates, _ = optimizer.update(gradient | {"b": jnp.ones(2)}, state, params)
    np.testing.assert_array_equal(updates["a"], [-1.0, -1.0])
    assert updates["activation"] is None
    assert updates["steps"] is None
    assert_close(updates["b"], [-1.0, -1.0], 2000)  # Adam's 1 - 0.999 has an eps of that, which is a thousand of those
