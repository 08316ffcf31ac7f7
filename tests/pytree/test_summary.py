"""Guards the promise that `summary` counts the leaves, parameters and bytes of each group and subtree exactly, as data
and as a printed table."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import Summary, SummaryRow, any_of, by_path, is_array, is_inexact_array
from trees import over_samples


def numbers(row):
    return (row.leaves, row.parameters, row.bytes)


def counted(leaves):
    """Leaves, elements and bytes, from shapes and item sizes."""
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array | np.ndarray | np.generic)]
    sizes = [math.prod(np.shape(array)) for array in arrays]
    bytes_ = sum(size * array.dtype.itemsize for size, array in zip(sizes, arrays, strict=True))
    return (len(leaves), sum(sizes), bytes_)


def network():
    return {
        "model": {
            "layers": [{"w": jnp.ones((3, 4)), "b": np.ones(4, np.float16)}, {"w": jnp.ones((4, 2))}],
            "name": "net",
        },
        "steps": jnp.int32(0),
    }


# --- what is counted


@pytest.mark.parametrize(
    ("leaf", "parameters", "nbytes"),
    [
        (jnp.ones((2, 3)), 6, 24),
        (jnp.ones(3, jnp.int4), 3, 3),
        (jnp.ones(3, jnp.float8_e4m3fn), 3, 3),
        (jnp.ones(()), 1, 4),
        (jnp.ones((0, 5)), 0, 0),
        (np.ones((2, 3))[:, ::2], 4, 32),
        (np.float64(1), 1, 8),
        (jax.ShapeDtypeStruct((2, 3), jnp.float16), 6, 12),
        (jax.random.key(0), 1, 8),  # two uint32
        (jax.random.split(jax.random.key(0), 5), 5, 40),
        (jax.random.key(0, impl="rbg"), 1, 16),
        (jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 5)), 5, 40),
        (1, 0, 0),
        ("text", 0, 0),
        (object(), 0, 0),
    ],
    ids=lambda x: f"{type(x).__name__} {getattr(x, 'dtype', '')}" if not isinstance(x, int) else "",
)
def test_each_kind_of_leaf(leaf, parameters, nbytes):
    assert numbers(partax.summary([leaf]).total) == (1, parameters, nbytes)
    assert numbers(partax.summary(leaf).total) == (1, parameters, nbytes)
    if isinstance(leaf, jax.Array):
        assert (leaf.size, leaf.nbytes) == (parameters, nbytes)


def test_none_is_no_leaf():
    assert partax.summary([None, (), {}]) == Summary(
        (), (SummaryRow("", "rest", 0, 0, 0),), SummaryRow("", "", 0, 0, 0)
    )


# --- groups


@over_samples
def test_the_totals_of_every_kind_of_tree(make):
    tree = make()
    for depth in (0, 1, 2, None):
        found = partax.summary(tree, is_array, depth=depth)
        assert numbers(found.total) == counted(jax.tree.leaves(tree))
        arrays, rest = partax.partition(tree, is_array)
        assert [numbers(row) for row in found.groups] == [counted(jax.tree.leaves(part)) for part in (arrays, rest)]


# --- subtrees


def test_rows_of_each_depth():
    tree = network()
    paths = {depth: [row.path for row in partax.summary(tree, depth=depth).rows] for depth in (0, 1, 2, 3, 4, 9, None)}
    assert paths[0] == [""]
    assert paths[1] == ["model", "steps"]
    assert paths[2] == ["model/layers", "model/name", "steps"]
    assert paths[3] == ["model/layers/0", "model/layers/1", "model/name", "steps"]
    assert paths[4] == ["model/layers/0/b", "model/layers/0/w", "model/layers/1/w", "model/name", "steps"]
    assert paths[9] == paths[None] == paths[4]
    assert partax.summary(tree) == partax.summary(tree, depth=2)


@pytest.mark.parametrize("depth", [0, 1, 2, 3, None])
def test_the_rows_add_up_to_the_groups_and_these_to_the_total(depth):
    tree = [network(), eqx.nn.MLP(3, 2, 8, 3, key=jax.random.key(0)), network()]
    found = partax.summary(tree, by_path("**/{w,weight}"), any_of(by_path("**/{b,bias}")), depth=depth)

    def added(rows):
        return tuple(sum(column) for column in zip(*map(numbers, rows), strict=True))

    for group in found.groups:
        assert added(row for row in found.rows if row.group == group.group) == numbers(group)
        assert group.leaves > 0
    assert added(found.groups) == numbers(found.total) == counted(jax.tree.leaves(tree))


def test_subtrees_whose_paths_print_alike_have_rows_of_their_own():
    found = partax.summary({"a/b": [1, 2], "a": {"b": [3]}})
    assert [(row.path, row.leaves) for row in found.rows] == [("a/b", 1), ("a/b/0", 1), ("a/b/1", 1)]
    found = partax.summary([{"1": "x"}, {1: "y"}])
    assert [(row.path, row.leaves) for row in found.rows] == [("0/1", 1), ("1/1", 1)]


# --- names


def test_names_of_the_groups():
    tree = network()
    for names, expected in [
        (("one", "two"), ["one", "two", "rest"]),
        (["one", "two", "three"], ["one", "two", "three"]),
    ]:
        found = partax.summary(tree, is_inexact_array, is_array, names=names)
        assert [row.group for row in found.groups] == expected
        assert {row.group for row in found.rows} == set(expected)


def test_default_names_are_distinct_and_short():
    def rest(leaf):
        return False

    tree = network()
    everything = jax.tree.map(lambda _: True, tree)
    filters = [lambda x: False, lambda x: True, (int, str), everything, rest, False, eqx.nn.Linear]
    names = [row.group for row in partax.summary(tree, *filters).groups]
    assert len(set(names)) == len(filters) + 1
    assert names[3] == "filter 4"
    assert names[6] == "Linear"
    assert all(len(name) < 120 for name in names)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"names": ("one",)}, ValueError, "found 1 names, expected 2"),
        ({"names": ("a", "b", "c", "d")}, ValueError, "found 4 names, expected 2"),
        ({"names": "ab"}, ValueError, "found 1 names"),
        ({"names": ("a", "a")}, ValueError, "differ"),
        ({"names": ("a", "rest")}, ValueError, "differ"),
        ({"names": ("a", 1)}, TypeError, "strings"),
        ({"depth": -1}, ValueError, "depth"),
        ({"depth": 1.0}, TypeError, "depth"),
        ({"depth": "1"}, TypeError, "depth"),
    ],
    ids=repr,
)
def test_wrong_options(options, kind, words):
    with pytest.raises(kind, match=words):
        partax.summary([1], int, str, **options)


# --- as data and as a table


def cells_of(table):
    """The cells of a printed table, without the rules."""
    lines = [line.split("  ") for line in table.splitlines() if set(line) != {"-"}]
    return [[cell.strip() for cell in line if cell.strip()] for line in lines]


def test_the_printed_table_has_the_data():
    found = partax.summary(network(), by_path("**/w"), names=["weights"])
    heading, *lines = cells_of(str(found))
    assert heading == ["subtree", "group", "leaves", "parameters", "bytes"]
    rows = [[row.path, row.group, *map(str, numbers(row))] for row in found.rows]
    totals = [["total", row.group, *map(str, numbers(row))] for row in found.groups]
    assert lines == [*rows, *totals, ["total", *map(str, numbers(found.total))]]


def test_a_table_of_very_many_subtrees_is_cut_and_says_so():
    found = partax.summary([jnp.ones(1)] * 1000)
    lines = str(found).splitlines()
    assert len(found.rows) == 1000
    assert len(lines) == 105
    assert "900 more" in lines[-3]
    assert lines[-1].split() == ["total", "1,000", "1,000", "4,000"]
