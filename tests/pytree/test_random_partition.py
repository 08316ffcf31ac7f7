"""Guards the promise that for any tree of any family and any filters, partition and flat_partition put each leaf where
the slow model does, keys are those of jax.tree_util.keystr, and combine and flat_combine give the tree again."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partax
import partition_reference as reference
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
    reread,
)
from random_trees import Tag, build, quick, recipes, thorough, variants
from reference import is_dynamic, static_key
from trees import Bag, Cell, Colour, Config, Layer, Pair, Tray, double

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose

NODE_TYPES = [tuple, list, dict, OrderedDict, defaultdict, Pair, Cell, Layer, Bag, Tray, Tag, type(None)]
LEAF_TYPES = [jax.Array, np.ndarray, np.generic, int, bool, float, complex, str, bytes, set, Config, Colour, object]
types = st.sampled_from(NODE_TYPES + LEAF_TYPES)
predicates = st.sampled_from(
    [
        partax.is_array,
        partax.is_inexact_array,
        partax.is_array_like,
        partax.is_inexact_array_like,
        callable,
        is_dynamic,
        lambda x: isinstance(x, str | float),
        lambda x: x is double,
        lambda x: [x],
    ]
)
separators = st.sampled_from([None, "/", ".", "", "]["])


def escaped(segment: str) -> str:
    return re.sub(r"([\\*{},/])", r"\\\1", segment)


@st.composite
def globs(draw: st.DrawFn, paths: list[list[str]]) -> str:
    """Patterns near to a path of the tree."""
    segments = draw(st.sampled_from(paths)) if paths else []
    parts: list[str] = []
    for segment in segments:
        cut = draw(st.integers(0, len(segment)))
        start, end = escaped(segment[:cut]), escaped(segment[cut:])
        both = start + end
        choices = [both, both, "*", "**", f"{start}*{end}", f"{start}*", f"*{end}", f"{{{both},x/y}}"]
        parts.append(draw(st.sampled_from(choices)))
        if draw(st.integers(0, 5)) == 0:
            parts.append("**")
    if parts and draw(st.booleans()):
        i = draw(st.integers(0, len(parts) - 1))
        j = draw(st.integers(i, len(parts)))
        some = "/".join(parts[i:j])
        choices = [["**"], [f"{{{some},**}}"], [f"{{a,{some}{{,x}}}}"], ["*"]]
        parts[i:j] = draw(st.sampled_from(choices))
    return "/".join(parts)


@st.composite
def regexes(draw: st.DrawFn, paths: list[list[str]]) -> str:
    segments = draw(st.sampled_from(paths)) if paths else []
    text = "/".join(segments)
    i = draw(st.integers(0, len(text)))
    j = draw(st.integers(i, len(text)))
    piece = re.escape(text[i:j])
    return draw(st.sampled_from([piece, f"^{piece}", f"{piece}$", f"^{piece}$", r"\d", "^$", f"[0-9].*{piece}", ""]))


def filters_of(tree: Any) -> st.SearchStrategy[Any]:
    """Filters of every kind, as the model writes them, that are valid for the tree."""
    paths = [place.segments for place in reference.places(tree)]
    simple = st.one_of(
        predicates,
        st.booleans(),
        types,
        st.lists(types, min_size=1, max_size=3).map(tuple),
        globs(paths).map(Glob),
        regexes(paths).map(Regex),
    )

    def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        members = st.lists(inner, max_size=3).map(tuple)
        return st.one_of(members.map(AnyOf), members.map(AllOf), inner.map(Not))

    nested = st.recursive(simple, combined, max_leaves=4)
    return st.one_of(nested, prefixes_of(tree, nested), combined(prefixes_of(tree, nested)))


@st.composite
def prefixes_of(draw: st.DrawFn, tree: Any, leaves: st.SearchStrategy[Any]) -> Any:
    """A prefix of the tree whose leaves are filters."""
    pairs = one_level(tree)
    if pairs is None or draw(st.integers(0, 3)) == 0:
        return draw(leaves)
    children = [draw(prefixes_of(child, leaves)) for _, child in pairs]
    if not pairs:
        return tree
    structure = jax.tree.structure(tree, is_leaf=lambda x: x is not tree)
    return jax.tree.unflatten(structure, children)


@st.composite
def trees_and_filters(draw: st.DrawFn) -> tuple[Any, tuple[Any, ...]]:
    tree = build(draw(recipes), 1)
    return tree, tuple(draw(st.lists(filters_of(tree), max_size=4)))


def assert_same_part(actual: Any, tree: Any) -> None:
    """The same static part, and the same arrays: of a set or a bytearray in a spec there is a snapshot."""
    assert static_key(actual) == static_key(reread(tree))
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(tree), strict=True):
        assert a is b or not is_dynamic(b)


@quick
@given(trees_and_filters(), st.randoms(use_true_random=False))
def test_partition_and_combine(case: tuple[Any, tuple[Any, ...]], random: Any) -> None:
    tree, filters = case
    parts = partax.partition(tree, *map(for_partax, filters))
    for part, expected in zip(parts, reference.partition(tree, filters), strict=True):
        assert_identical(part, expected)
    order = random.sample(parts, len(parts))
    assert_identical(partax.combine(*order), reread(tree))
    if len(filters) == 1:
        assert_identical(partax.filter(tree, for_partax(filters[0])), parts[0])
        assert_identical(partax.filter(tree, for_partax(filters[0]), inverse=True), parts[1])


@quick
@given(trees_and_filters(), st.randoms(use_true_random=False))
def test_any_subset_combined(case: tuple[Any, tuple[Any, ...]], random: Any) -> None:
    tree, filters = case
    parts = partax.partition(tree, *map(for_partax, filters))
    chosen = random.sample(range(len(parts)), random.randint(1, len(parts)))
    owners = [reference.owner(filters, place) for place in reference.places(tree)]
    leaves, treedef = jax.tree.flatten(tree)
    kept = [leaf if owner in chosen else None for leaf, owner in zip(leaves, owners, strict=True)]
    assert_identical(partax.combine(*(parts[i] for i in chosen)), jax.tree.unflatten(treedef, kept))


@quick
@given(trees_and_filters(), separators, st.randoms(use_true_random=False))
def test_flat_partition_and_flat_combine(case: tuple[Any, tuple[Any, ...]], separator: str | None, random: Any) -> None:
    tree, filters = case
    options: Any = {"separator": separator}
    spec, *dicts = partax.flat_partition(tree, *map(for_partax, filters), **options)
    expected = reference.flat_partition(tree, filters, **options)
    for found, wanted in zip(dicts, expected, strict=True):
        assert_identical_dicts(found, wanted)
    assert spec.paths == tuple(reference.keys_of(reference.places(tree), separator))
    assert_identical(partax.flat_combine(spec, *random.sample(dicts, len(dicts))), reread(tree))

    static_spec, *dicts = partax.flat_partition(tree, *map(for_partax, filters), rest="static", **options)
    for found, wanted in zip(dicts, expected[:-1], strict=True):
        assert set(map(id, found.values())) == set(map(id, wanted.values()))
    both = partax.flat_combine(static_spec, *random.sample(dicts, len(dicts)))
    assert_same_part(both, tree)


@quick
@given(recipes, separators)
def test_keys_are_jax_s(recipe: Any, separator: str | None) -> None:
    tree = build(recipe, 1)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    keystr = jax.tree_util.keystr
    keys = [keystr(p) if separator is None else keystr(p, simple=True, separator=separator) for p in paths]
    spec, all_leaves = partax.flat_partition(tree, separator=separator)
    assert len(all_leaves) == len(keys)
    for found, key in zip(all_leaves, keys, strict=True):
        assert found == key or (keys.count(key) > 1 and re.fullmatch(re.escape(key) + r"#\d+", found))
    assert spec.paths == tuple(all_leaves)


@thorough
@given(trees_and_filters(), st.sampled_from(NODE_TYPES))
def test_with_is_leaf(case: tuple[Any, tuple[Any, ...]], kind: type) -> None:
    tree, _ = case
    is_leaf = lambda x: isinstance(x, kind)
    filters = (tuple, Glob("*"), partax.is_array, Not(Glob("**/0")), (kind, str))
    parts = partax.partition(tree, *map(for_partax, filters), is_leaf=is_leaf, replace="gone")
    for part, expected in zip(parts, reference.partition(tree, filters, is_leaf=is_leaf, replace="gone"), strict=True):
        assert_identical(part, expected)
    spec, *dicts = partax.flat_partition(tree, *map(for_partax, filters), is_leaf=is_leaf)
    for found, wanted in zip(dicts, reference.flat_partition(tree, filters, is_leaf=is_leaf), strict=True):
        assert_identical_dicts(found, wanted)
    both = partax.flat_combine(spec, *dicts)
    for a, b in zip(jax.tree.leaves(both, is_leaf=is_leaf), jax.tree.leaves(tree, is_leaf=is_leaf), strict=True):
        assert a is b


# --- specs and statics


@quick
@given(recipes.flatmap(lambda r: st.tuples(st.just(r), st.one_of(variants(r), st.just(r), recipes))), separators)
def test_specs_are_equal_exactly_where_the_model_s_keys_are(pair: tuple[Any, Any], separator: str | None) -> None:
    trees = [build(recipe, n) for n, recipe in enumerate(pair, start=1)]
    same = static_key(trees[0]) == static_key(trees[1])
    left, right = (partax.flat_partition(t, is_dynamic, rest="static", separator=separator)[0] for t in trees)
    assert (left == right) is same
    assert (left != right) is not same
    if same:
        assert hash(left) == hash(right) and left.paths == right.paths
    assert (jax.tree.structure(left) == jax.tree.structure(right)) is same


@thorough
@given(recipes.flatmap(lambda r: st.tuples(st.just(r), st.one_of(variants(r), st.just(r), recipes))))
def test_specs_without_leaves_compare_the_structure_alone(pair: tuple[Any, Any]) -> None:
    trees = [jax.tree.map(lambda _: jnp.ones(()), build(recipe, 1)) for recipe in pair]
    same = static_key(trees[0]) == static_key(trees[1])
    left, right = (partax.flat_partition(build(recipe, 2))[0] for recipe in pair)
    assert (left == right) is same
    if same:
        assert hash(left) == hash(right)
