"""Guards the promise that `labels` names each leaf's group as `partition` would choose it, in the tree that
`optax.multi_transform` takes, and that `summary` counts the leaves, parameters and bytes of each group and subtree
exactly, as data and as a printed table."""

import collections
import math
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partax
from partax import by_path, is_array, is_inexact_array
from partax.tree import labels, summary
from trees import assert_close, assert_same, over_samples

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


def test_is_leaf_makes_one_label_for_a_node():
    tree = {"a": [1, 2], "b": (3, [4])}
    found = labels(tree, {"list": list, "int": int}, is_leaf=lambda node: isinstance(node, list))
    assert found == {"a": "list", "b": ("int", "list")}
    found = labels(model(), {"linear": eqx.nn.Linear}, default="rest", is_leaf=lambda n: n is not None)
    assert found == "rest"


PAIR = collections.namedtuple("Pair", "a b")(1, 2)
WRONG = [
    (
        ({"a": 1, "b": ["x", {"c": 2.0}]}, {"int": int}),
        {},
        ValueError,
        "takes `pytree['b'][0]`, `pytree['b'][1]['c']`;",
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


def test_labels_may_stand_where_the_parameters_have_none():
    tree = {"a": jnp.ones(2), "activation": jnp.tanh, "steps": jnp.arange(2), "b": jnp.ones(2)}
    names = labels(tree, {"a": by_path("a")}, default="rest")
    assert names == {"a": "a", "activation": "rest", "steps": "rest", "b": "rest"}
    optimizer = optax.multi_transform({"a": optax.sgd(1.0), "rest": optax.adam(1.0)}, names)
    params = partax.filter(tree, is_inexact_array)
    state = optimizer.init(params)
    gradient = {"a": jnp.ones(2), "activation": None, "steps": None, "b": None}
    updates, _ = optimizer.update(gradient | {"b": jnp.ones(2)}, state, params)
    np.testing.assert_array_equal(updates["a"], [-1.0, -1.0])
    assert updates["activation"] is updates["steps"] is None
    assert_close(updates["b"], [-1.0, -1.0], 2000)  # Adam's 1 - 0.999 has an eps of that, which is a thousand of those


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


@over_samples
def test_the_totals_of_every_kind_of_tree(make):
    tree = make()
    for depth in (0, 1, 2, None):
        found = summary(tree, is_array, depth=depth)
        assert numbers(found.total) == counted(jax.tree.leaves(tree))
        arrays, rest = partax.partition(tree, is_array)
        assert [numbers(row) for row in found.groups] == [counted(jax.tree.leaves(part)) for part in (arrays, rest)]


def test_rows_of_each_depth():
    tree = network()
    paths = {depth: [row.path for row in summary(tree, depth=depth).rows] for depth in (0, 1, 2, 4, 9, None)}
    assert paths[0] == [""] and paths[1] == ["model", "steps"] and paths[2] == ["model/layers", "model/name", "steps"]
    assert paths[4] == ["model/layers/0/b", "model/layers/0/w", "model/layers/1/w", "model/name", "steps"]
    assert paths[9] == paths[None] == paths[4]
    assert summary(tree) == summary(tree, depth=2)


@pytest.mark.parametrize("depth", [0, 1, 2, 3, None])
def test_the_rows_add_up_to_the_groups_and_these_to_the_total(depth):
    tree = [network(), eqx.nn.MLP(3, 2, 8, 3, key=jax.random.key(0)), network()]
    found = summary(tree, by_path("**/{w,weight}"), by_path("**/{b,bias}"), depth=depth)

    def added(rows):
        return tuple(sum(column) for column in zip(*map(numbers, rows), strict=True))

    for group in found.groups:
        assert added(row for row in found.rows if row.group == group.group) == numbers(group)
        assert group.leaves > 0
    assert added(found.groups) == numbers(found.total) == counted(jax.tree.leaves(tree))


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"names": ("one",)}, ValueError, "expected 2 that differ, or one more"),
        ({"names": ("a", "a")}, ValueError, "differ"),
        ({"names": ("a", "rest")}, ValueError, "differ"),
        ({"depth": -1}, ValueError, "depth"),
    ],
    ids=repr,
)
def test_wrong_options(options, kind, words):
    with pytest.raises(kind, match=words):
        summary([1], int, str, **options)


def cells_of(table):
    """The cells of a printed table, without the rules."""
    lines = [line.split("  ") for line in table.splitlines() if set(line) != {"-"}]
    return [[cell.strip() for cell in line if cell.strip()] for line in lines]


def test_the_printed_table_has_the_data():
    found = summary(network(), by_path("**/w"), names=["weights"])
    heading, *lines = cells_of(str(found))
    assert heading == ["subtree", "group", "leaves", "parameters", "bytes"]
    rows = [[row.path, row.group, *map(str, numbers(row))] for row in found.rows]
    totals = [["total", row.group, *map(str, numbers(row))] for row in found.groups]
    assert lines == [*rows, *totals, ["total", *map(str, numbers(found.total))]]
