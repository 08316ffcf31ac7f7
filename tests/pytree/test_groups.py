"""Guards the promise that `labels` names each leaf's group as `partition` would choose it, in the tree that
`optax.multi_transform` takes, and that `summary` counts the leaves, parameters and bytes of each group and subtree
exactly, as data and as a printed table."""

import collections
import itertools
import math
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import by_path, is_array
from partax.tree import labels, summary
from trees import assert_same, samples

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose


def model():
    a, b, c = jax.random.split(jax.random.key(0), 3)
    linear, tanh = eqx.nn.Linear, eqx.nn.Lambda(jnp.tanh)
    return eqx.nn.Sequential([linear(3, 4, key=a), tanh, linear(4, 4, key=b), tanh, linear(4, 2, key=c)])


@pytest.mark.parametrize(
    "filters", [(eqx.nn.Linear, is_array), (by_path("**/bias") | eqx.nn.Lambda, ~is_array), ()], ids=repr
)
def test_groups_are_those_of_partition(filters):
    tree, names = model(), [f"group {i}" for i in range(len(filters))]
    found = labels(tree, dict(zip(names, filters, strict=True)), default="rest")
    parts = zip([*names, "rest"], partax.partition(tree, *filters), strict=True)
    assert_same(found, partax.combine(*(jax.tree.map(lambda _, name=name: name, part) for name, part in parts)))


PAIR = collections.namedtuple("Pair", "a b")(1, 2)
WRONG = [
    (
        ({"a": 1, "b": ["x", {"c": 2.0}]}, {"int": int}),
        {},
        ValueError,
        "takes `pytree['b'][0]` and `pytree['b'][1]['c']`;",
    ),
    ((3, {}), {}, ValueError, "no group takes `pytree`;"),
    (([*range(10_001)], {"x": by_path("7")}), {}, ValueError, "and 9,995 more"),
    *((([1], groups), {"default": "x"}, TypeError, "mapping") for groups in ([("a", int)], "a", None, is_array)),
    *((([1], {label: int}), {}, ValueError, repr(label)) for label in (None, (), PAIR)),
    *((([1], {"x": int}), {"default": label}, ValueError, "as a label") for label in ((), PAIR, ["x"])),
    (([1], {"x": int}), {"default": np.ones(1)}, ValueError, "hashable"),
]


@pytest.mark.parametrize(("arguments", "options", "kind", "words"), WRONG)
def test_wrong_groups_and_labels_are_told(arguments, options, kind, words):
    with pytest.raises(kind, match=re.escape(words)) as caught:
        labels(*arguments, **options)
    assert len(str(caught.value)) < 400


def numbers(row):
    return (row.leaves, row.parameters, row.bytes)


def counted(leaves):
    """Leaves, elements and bytes, from shapes and item sizes."""
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array | np.ndarray | np.generic)]
    sizes = [math.prod(np.shape(array)) for array in arrays]
    bytes_ = sum(size * array.dtype.itemsize for size, array in zip(sizes, arrays, strict=True))
    return (len(leaves), sum(sizes), bytes_)


def network():
    layers = [{"w": jnp.ones((3, 4)), "b": np.ones(4, np.float16)}, {"w": jnp.ones((4, 2))}]
    return {"model": {"layers": layers, "name": "net"}, "steps": jnp.int32(0)}


@pytest.mark.parametrize(
    ("leaf", "parameters", "nbytes"),
    [
        (jnp.ones((2, 3)), 6, 24),
        (jnp.ones(3, jnp.int4), 3, 3),
        (jnp.ones(()), 1, 4),
        (jnp.ones((0, 5)), 0, 0),
        (np.ones((2, 3))[:, ::2], 4, 32),
        (np.float64(1), 1, 8),
        (jax.ShapeDtypeStruct((2, 3), jnp.float16), 6, 12),
        (jax.random.split(jax.random.key(0), 5), 5, 40),  # two uint32 each
        (jax.random.key(0, impl="rbg"), 1, 16),
        (jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 5)), 5, 40),
        ("text", 0, 0),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}" if not isinstance(x, int) else "",
)
def test_each_kind_of_leaf(leaf, parameters, nbytes):
    assert numbers(summary([leaf]).total) == numbers(summary(leaf).total) == (1, parameters, nbytes)
    if isinstance(leaf, jax.Array):
        assert (leaf.size, leaf.nbytes) == (parameters, nbytes)


def test_the_totals_of_every_kind_of_tree():
    for tree, depth in itertools.product(samples().values(), (0, 1, 2, None)):
        found = summary(tree, depth=depth)
        assert numbers(found.total) == counted(jax.tree.leaves(tree))
        assert numbers(found.total) == tuple(map(sum, zip(*map(numbers, found.rows), strict=True))) or not found.rows
