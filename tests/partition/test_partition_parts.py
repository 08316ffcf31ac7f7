"""Guards the promise that partition returns a tree for each filter and one for the rest, each of the same structure,
and that combine puts any of them together again in any order."""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
import partition_reference as reference
from partax import by_path, is_array, not_
from partition_reference import Glob, Not, Regex, assert_identical, for_partax
from test_filters import network
from trees import Bag, Cell, Layer, Model, Pair, array, make_model, over_samples

# As the model writes them; `for_partax` makes those that users write.
FILTERS: dict[str, tuple[Any, ...]] = {
    "no filter": (),
    "one": (is_array,),
    "predicates": (is_array, callable, lambda x: isinstance(x, int)),
    "bools": (False, True, True),
    "types": (jax.Array, np.ndarray, (int, str), Layer, list),
    "nodes": (Layer, Bag, (tuple, Cell), eqx.Module),
    "paths": (Glob("**/weight"), Glob("{0,a,layers}/**"), Regex("b"), Glob("*/*/*")),
    "all kinds": (Not(is_array), Layer, Glob("**/0"), False, is_array),
}
over_filters = pytest.mark.parametrize("filters", [pytest.param(f, id=name) for name, f in FILTERS.items()])


def reread(tree: Any) -> Any:
    """The tree as jax writes it: it sorts the keys of dicts."""
    return jax.tree.map(lambda x: x, tree)


@over_samples
@over_filters
def test_every_leaf_is_where_the_slow_model_puts_it(make: Any, filters: tuple[Any, ...]) -> None:
    tree = make()
    parts = partax.partition(tree, *map(for_partax, filters))
    expected = reference.partition(tree, filters)
    assert type(parts) is tuple and len(parts) == len(filters) + 1
    for part, wanted in zip(parts, expected, strict=True):
        assert_identical(part, wanted)


@over_samples
def test_each_part_keeps_the_structure_and_each_leaf_is_in_one_part(make: Any) -> None:
    tree = make()
    gone = object()
    parts = partax.partition(tree, *FILTERS["predicates"], replace=gone)
    leaves, treedef = jax.tree.flatten(tree)
    columns = []
    for part in parts:
        found, structure = jax.tree.flatten(part)
        assert structure == treedef
        columns.append(found)
    for leaf, candidates in zip(leaves, zip(*columns, strict=True), strict=True):
        kept = [x for x in candidates if x is not gone]
        assert len(kept) == 1 and kept[0] is leaf


@over_samples
@over_filters
def test_combine_puts_all_parts_together_in_any_order(make: Any, filters: tuple[Any, ...]) -> None:
    tree = make()
    parts = partax.partition(tree, *map(for_partax, filters))
    orders = list(itertools.permutations(parts)) if len(parts) <= 4 else [parts, parts[::-1]]
    for order in orders:
        assert_identical(partax.combine(*order), reread(tree))


@pytest.mark.parametrize("make", [network, make_model], ids=["network", "model"])
def test_combine_takes_any_subset_of_the_parts(make: Any) -> None:
    tree = make()
    filters = (by_path("**/weight"), is_array, str)
    parts = partax.partition(tree, *filters)
    owners = [[x is not None for x in jax.tree.leaves(part, is_leaf=lambda x: x is None)] for part in parts]
    leaves, treedef = jax.tree.flatten(tree, is_leaf=lambda x: x is None)
    for size in range(1, len(parts) + 1):
        for chosen in itertools.permutations(range(len(parts)), size):
            both = partax.combine(*(parts[i] for i in chosen))
            expected = [leaf if any(owners[i][n] for i in chosen) else None for n, leaf in enumerate(leaves)]
            assert_identical(both, jax.tree.unflatten(treedef, expected))
            if size == len(parts):
                assert_identical(both, reread(tree))


def test_parts_can_be_partitioned_and_combined_again() -> None:
    tree = network()
    arrays, rest = partax.partition(tree, is_array)
    linear, conv, others = partax.partition(arrays, eqx.nn.Linear, eqx.nn.Conv2d)
    assert_identical(partax.combine(others, rest, linear, conv), reread(tree))
    assert_identical(partax.combine(conv, linear, others), arrays)


def test_replace_stands_in_every_part() -> None:
    gone = object()
    first, second, rest = partax.partition([1, "x", 2.5], int, str, replace=gone)
    assert first == [1, gone, gone]
    assert second == [gone, "x", gone]
    assert rest == [gone, gone, 2.5]


def test_no_filter_gives_the_rest_alone() -> None:
    tree = make_model()
    (rest,) = partax.partition(tree)
    assert_identical(rest, tree)


def test_one_filter_by_its_keyword() -> None:
    tree = [1, "x", array(2)]
    for f in (is_array, str, by_path("1"), [True, False, is_array]):
        for part, expected in zip(partax.partition(tree, filter_spec=f), partax.partition(tree, f), strict=True):
            assert_identical(part, expected)
    with pytest.raises(TypeError):
        partax.partition(tree, is_array, filter_spec=is_array)
    with pytest.raises(TypeError):
        partax.partition(tree, is_array, unknown=1)
    with pytest.raises(TypeError):
        partax.partition()


def test_filter_takes_every_kind_of_filter_and_one_only() -> None:
    tree = network()
    for f in (eqx.nn.Linear, (str, jax.Array), by_path("layers/**"), not_(is_array)):
        kept, rest = partax.partition(tree, f)
        assert_identical(partax.filter(tree, f), kept)
        assert_identical(partax.filter(tree, f, inverse=True), rest)
    for second in (str, (str, int), is_array, by_path("**"), {"a": True}):
        with pytest.raises(TypeError, match="`inverse`"):
            partax.filter(tree, is_array, second)  # pyright: ignore[reportArgumentType]


def test_the_input_is_not_changed_and_parts_share_no_container_with_it() -> None:
    tree = {"a": [1, {"b": "x"}], "c": Pair([2], "y")}
    parts = partax.partition(tree, int, str)
    for part in parts:
        part["a"][1].clear()
        part["a"].clear()
        part["c"].left.clear()
        part.clear()
    assert tree == {"a": [1, {"b": "x"}], "c": Pair([2], "y")}


def test_is_leaf_holds_for_every_filter() -> None:
    tree = [Pair(1, "x"), {"p": Pair(2, 3)}, 4, "y"]
    is_leaf = lambda x: isinstance(x, Pair)
    for filters in ((tuple, int), (int, str), (Glob("*"), Glob("1/p")), (Not(str),), (is_leaf, is_leaf), (list,)):
        parts = partax.partition(tree, *map(for_partax, filters), is_leaf=is_leaf)
        for part, wanted in zip(parts, reference.partition(tree, filters, is_leaf=is_leaf), strict=True):
            assert_identical(part, wanted)
        assert_identical(partax.combine(*parts, is_leaf=is_leaf), tree)
        assert_identical(partax.combine(*parts[::-1], is_leaf=is_leaf), tree)


def test_is_leaf_is_asked_as_jax_asks() -> None:
    tree = {"b": [1, (2, None)], "a": Layer(array(1))}
    asked: list[list[Any]] = [[], []]
    partax.partition(tree, int, list, by_path("**"), is_leaf=lambda x: asked[0].append(x))
    jax.tree.flatten(tree, is_leaf=lambda x: asked[1].append(x))
    assert [id(x) for x in asked[0]] == [id(x) for x in asked[1]]


def test_under_tracing_tracers_are_kept() -> None:
    seen: list[int] = []

    @jax.jit
    def f(x: jax.Array, n: jax.Array) -> Any:
        tree = {"x": x, "n": [n, "s"], "m": Model([Layer(x)])}
        parts = partax.partition(tree, Model, by_path("n/0"), is_array)
        seen.extend(len(jax.tree.leaves(part)) for part in parts)
        assert parts[0]["m"].layers[0].weight is x and parts[1]["n"][0] is n and parts[2]["x"] is x
        return partax.combine(*parts)["m"].layers[0].weight * 2

    np.testing.assert_array_equal(f(jnp.ones(2), jnp.arange(2)), 2.0)
    assert seen == [2, 1, 1, 1]


def test_inside_and_through_filter_jit() -> None:
    tree = network()
    linear, conv, rest = partax.partition(tree, eqx.nn.Linear, eqx.nn.Conv2d)

    @partax.filter_jit
    def f(linear: Any, conv: Any, rest: Any) -> Any:
        return partax.partition(partax.combine(rest, conv, linear), eqx.nn.Linear, eqx.nn.Conv2d)

    for part, expected in zip(f(linear, conv, rest), (linear, conv, rest), strict=True):
        assert jax.tree.structure(part) == jax.tree.structure(expected)
        for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(expected), strict=True):
            assert a is b


def test_shapes_are_leaves_like_any_other() -> None:
    tree = eqx.filter_eval_shape(make_model)
    shapes, rest = partax.partition(tree, jax.ShapeDtypeStruct)
    assert len(jax.tree.leaves(shapes)) == 4 and not any(is_array(x) for x in jax.tree.leaves(rest))
    assert_identical(partax.combine(rest, shapes), tree)


def test_a_large_tree() -> None:
    tree = [array(1), *range(100_000), {"a": ["x"] * 1000}]
    parts = partax.partition(tree, is_array, lambda x: x == 7, by_path("1000{,0,1}"), dict, (int, str))
    assert [len(jax.tree.leaves(part)) for part in parts] == [1, 1, 3, 1000, 99_996, 0]
    assert parts[1][8] == 7 and parts[2][1000] == 999 and parts[3][-1] == tree[-1]
    assert_identical(partax.combine(*parts), tree)


def test_many_filters() -> None:
    tree = list(range(300))
    parts = partax.partition(tree, *(by_path(str(i)) for i in range(300)))
    assert all(part == [i if i == n else None for i in range(300)] for n, part in enumerate(parts[:-1]))
    assert parts[-1] == [None] * 300
    assert partax.combine(*parts) == tree
