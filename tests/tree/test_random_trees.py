"""Guards the promise that on any tree of any family, filter_jit gives the results and the number of
traces of the slow model in reference.py, and that every native stage agrees with jax.tree."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import partax
from random_trees import build, describe, nodes, recipes, thorough, variants
from reference import (
    JitModel,
    assert_exact,
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
