"""Guards the promise that on any tree of any family, filter_jit gives the results and the number of
traces of the slow model in reference.py, and that every native stage agrees with jax.tree."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import partax
from partax import _core
from random_trees import aux_data, build, describe, fresh, nodes, quick, recipes, thorough, variants
from reference import (
    JitModel,
    assert_exact,
    canonical,
    dynamic_leaves,
    static_key,
)
from trees import add_one


@st.composite
def call_sequences(draw: st.DrawFn) -> tuple[list[Any], list[tuple[int, bool]]]:
    """Recipes near to each other, and in which order each is called twice, by keyword or not."""
    first = draw(nodes(recipes))
    near = draw(st.lists(variants(first), min_size=1, max_size=3))
    some = [first, *near, *draw(st.lists(recipes, max_size=1))]
    order = draw(st.permutations([*range(len(some)), *range(len(some))]))
    return some, [(index, draw(st.booleans())) for index in order]


BODIES = {
    "identity": lambda tree: tree,
    "add one": add_one,
    "both": lambda tree: {"same": tree, "new": (add_one(tree), tree), "seen": describe(tree)},
    "static": describe,
}


@thorough
@given(call_sequences(), st.sampled_from(sorted(BODIES)))
def test_filter_jit_gives_the_model_s_results_and_number_of_traces(
    sequence: tuple[list[Any], list[tuple[int, bool]]], name: str
) -> None:
    traces = []

    def body(tree: Any) -> Any:
        traces.append(name)
        return BODIES[name](tree)

    jitted, model = partax.filter_jit(body), JitModel(lambda tree: BODIES[name](tree))
    some, calls = sequence
    for n, (index, by_keyword) in enumerate(calls):
        tree = build(some[index], n)
        result = jitted(tree=tree) if by_keyword else jitted(tree)
        assert_exact(result, model(build(some[index], n)))
        assert len(traces) == model.traces


@thorough
@given(recipes)
def test_paths_are_jax_s_key_paths(recipe: Any) -> None:
    tree = build(recipe, 1)
    assert _core.flatten(tree)[1].dynamic_paths() == [path for path, _ in dynamic_leaves(tree)]


@quick
@given(recipes.flatmap(lambda r: st.tuples(st.just(r), st.one_of(variants(r), st.just(r), recipes))))
def test_specs_match_exactly_where_the_model_s_keys_do(pair: tuple[Any, Any]) -> None:
    left, right = build(pair[0], 1), build(pair[1], 2)
    same = static_key(left) == static_key(right)
    (_, left_spec), (right_leaves, right_spec) = _core.flatten(left), _core.flatten(right)
    assert (left_spec == right_spec) is same
    assert (left_spec != right_spec) is not same
    if same:
        assert hash(left_spec) == hash(right_spec)
    matched = left_spec.match(right)
    assert (matched is not None) is same
    if matched is not None:
        assert len(matched) == len(right_leaves)
        assert all(a is b for a, b in zip(matched, right_leaves, strict=True))
    assert {left_spec: "value"}.get(right_spec) == ("value" if same else None)


@quick
@given(aux_data, aux_data)
def test_static_equality_and_hash_agree_with_the_model(left: Any, right: Any) -> None:
    assert _core.static_equal(left, right) is (canonical(left) == canonical(right))
    assert _core.static_equal(left, fresh(left)) is True
    assert _core.static_hash(left) == _core.static_hash(fresh(left))
