"""Guards the promise that partition gives a tree for each filter and one for the rest, each of the same structure and
types, and combine the tree again from any of them in any order; with one filter both do as Equinox's do."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partax
import partition_reference as reference
from partax import by_path, is_array
from partition_reference import (
    AllOf,
    AnyOf,
    Glob,
    Not,
    Regex,
    assert_identical,
    assert_identical_dicts,
    for_partax,
    one_level,
    over_filters,
    reread,
)
from random_trees import build, quick, recipes
from trees import Bag, Layer, Pair, array, samples

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose
SPECS = {
    "is_array": lambda tree: partax.is_array,
    "is_inexact_array": lambda tree: partax.is_inexact_array,
    "python predicate": lambda tree: lambda x: isinstance(x, (int, np.ndarray)),
    "False": lambda tree: False,
    "prefix": lambda tree: {
        k: (True, False, partax.is_array, lambda x: callable(x))[i % 4] for i, k in enumerate(tree)
    },
    "full tree": lambda tree: jax.tree.map(lambda x: isinstance(x, jax.Array), tree),
}


@pytest.mark.parametrize("name", SPECS)
def test_one_filter_is_the_slow_model_s_and_equinox_s(name: str) -> None:
    tree = samples()
    spec = SPECS[name](tree)
    parts = partax.partition(tree, spec)
    found = partax.filter(tree, spec), partax.filter(tree, spec, inverse=True)
    for both in (reference.partition(tree, (spec,)), found, eqx.partition(tree, spec)):
        for part, wanted in zip(parts, both, strict=True):
            assert_identical(part, wanted)


@over_filters
def test_every_leaf_is_where_the_slow_model_puts_it_and_combine_takes_the_parts_in_any_order(
    filters: tuple[Any, ...],
) -> None:
    for tree in samples().values():
        parts = partax.partition(tree, *map(for_partax, filters))
        for part, wanted in zip(parts, reference.partition(tree, filters), strict=True):
            assert_identical(part, wanted)
        for order in (parts, parts[::-1]):
            assert_identical(partax.combine(*order), reread(tree))


def test_wrong_arguments() -> None:
    tree = [1, "x", array(2)]
    wrong: Any
    for wrong in ({"filter_spec": is_array}, {"unknown": 1}):
        with pytest.raises(TypeError):
            partax.partition(tree, is_array, **wrong)
    with pytest.raises(TypeError):
        partax.partition()
    for second in (str, (str, int), is_array, by_path("**"), {"a": True}):
        with pytest.raises(TypeError, match="`inverse`"):
            partax.filter(tree, is_array, second)  # pyright: ignore[reportArgumentType]


def test_the_input_is_not_changed_and_parts_share_no_container_with_it() -> None:
    tree = {"a": [1, {"b": "x"}], "c": Pair([2], "y")}
    for part in partax.partition(tree, int, str):
        for container in (part["a"][1], part["a"], part["c"].left, part):
            container.clear()
    assert tree == {"a": [1, {"b": "x"}], "c": Pair([2], "y")}


def test_is_leaf_is_asked_as_jax_asks() -> None:
    tree = {"b": [1, (2, None)], "a": Layer(array(1))}
    asked: list[list[Any]] = [[], []]
    partax.partition(tree, int, list, by_path("**"), is_leaf=lambda x: asked[0].append(x))
    jax.tree.flatten(tree, is_leaf=lambda x: asked[1].append(x))
    assert [id(x) for x in asked[0]] == [id(x) for x in asked[1]]


def test_a_large_tree() -> None:
    tree = [array(1), *range(20_000), {"a": ["x"] * 1000}]
    parts = partax.partition(tree, is_array, lambda x: x == 7, by_path("1000{,0,1}"), dict, (int, str))
    assert [len(jax.tree.leaves(part)) for part in parts] == [1, 1, 3, 1000, 19_996, 0]
    assert parts[1][8] == 7 and parts[2][1000] == 999 and parts[3][-1] == tree[-1]
    assert_identical(partax.combine(*parts), tree)


# --- random trees and filters; those of tests/fuzz have no prefixes and no `is_leaf`

KINDS = [tuple, list, dict, Pair, Layer, Bag, type(None), jax.Array, np.ndarray, int, bool, str, (float, bytes), object]
SIMPLE = st.one_of(
    st.sampled_from([*KINDS, is_array, eqx.is_inexact_array_like, callable, lambda x: [x], True, False]),
    st.sampled_from(["**", "*", "0/**", "**/weight", "**/{left,0}", "a"]).map(Glob),
    st.sampled_from(["0", "^a", "t$", "^$"]).map(Regex),
)


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.lists(inner, max_size=3).map(tuple)
    return st.one_of(members.map(AnyOf), members.map(AllOf), inner.map(Not))


NESTED = st.recursive(SIMPLE, combined, max_leaves=4)


@st.composite
def prefixes_of(draw: st.DrawFn, tree: Any) -> Any:
    """A prefix of the tree whose leaves are filters."""
    pairs = one_level(tree)
    if pairs is None or draw(st.integers(0, 3)) == 0:
        return draw(NESTED)
    children = [draw(prefixes_of(child)) for _, child in pairs]
    return jax.tree.structure(tree, is_leaf=lambda x: x is not tree).unflatten(children) if pairs else tree


@quick
@given(recipes, st.data())
def test_random_filters_take_what_the_slow_model_says(recipe: Any, data: st.DataObject) -> None:
    tree = build(recipe, 1)
    some = st.one_of(NESTED, prefixes_of(tree), combined(prefixes_of(tree)))
    filters = tuple(data.draw(st.lists(some, max_size=4)))
    parts = partax.partition(tree, *map(for_partax, filters))
    for part, expected in zip(parts, reference.partition(tree, filters), strict=True):
        assert_identical(part, expected)
    assert_identical(partax.combine(*data.draw(st.permutations(parts))), reread(tree))
    kind, plain = data.draw(st.sampled_from(KINDS)), tuple(data.draw(st.lists(NESTED, max_size=4)))
    options: dict[str, Any] = {"is_leaf": lambda x: isinstance(x, kind), "replace": "gone"}
    parts = partax.partition(tree, *map(for_partax, plain), **options)
    for part, expected in zip(parts, reference.partition(tree, plain, **options), strict=True):
        assert_identical(part, expected)
    spec, again = (partax.flat_partition(it, is_array, rest="static")[0] for it in (tree, build(recipe, 2)))
    assert spec == again and hash(spec) == hash(again)
    separator = data.draw(st.sampled_from([None, "/", "", " -> "]))
    _, *dicts = partax.flat_partition(tree, *map(for_partax, filters), separator=separator)
    for found, wanted in zip(dicts, reference.flat_partition(tree, filters, separator=separator), strict=True):
        assert_identical_dicts(found, wanted)
