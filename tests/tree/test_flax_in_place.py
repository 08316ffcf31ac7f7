"""Guards that nothing of a Flax object is taken for what it was: its metadata, a list of values that a FlatState keeps,
and the functions of another version of Flax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import partax
from reference import assert_exact
from trees import Bag

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose

nnx = pytest.importorskip("flax.nnx", reason="Flax is not here")


class Holder:
    """Sets an attribute where its dictionary is another's metadata."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.__dict__ = metadata

    def put(self, value: int) -> None:
        self.mark = value


CHANGES: dict[str, Callable[[dict[str, Any], int], Any]] = {
    "an item": lambda metadata, n: metadata.__setitem__("mark", n),
    "added": lambda metadata, n: metadata.__setitem__(f"more {n}", n),
    "clear": lambda metadata, n: metadata.clear(),
    "an attribute": lambda metadata, n: Holder(metadata).put(n),
    "nothing": lambda metadata, n: None,
}


SOURCES: dict[str, Callable[[Any], Any]] = {
    "made by Flax": lambda variables: variables,
    "a result": partax.filter_jit(lambda variables: jax.tree.map(lambda array: array + 1, variables)),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_metadata_that_change_in_place_between_calls_are_seen(
    change: Callable[[dict[str, Any], int], Any], source: Callable[[Any], Any]
) -> None:
    @partax.filter_jit
    def told(variables: Any) -> Any:
        return [(v[...] + 1, dict(v._var_metadata)) for v in variables]

    for n in range(500, 600):  # CPython has ways of its own to set an attribute that is set often
        CHANGES["an attribute"]({}, n)
    variables = source([nnx.Param(jnp.ones(1), mark=n, first=None) for n in range(2)])
    for n in range(4):
        change(variables[1]._var_metadata, 1000 + n)
        for _ in range(3):
            found = [metadata for _, metadata in told(variables)]
            assert found == [variable._var_metadata for variable in variables]


def test_a_dictionary_of_metadata_at_the_place_of_another_is_read() -> None:
    variable = nnx.Param(jnp.ones(1), mark=0)

    @partax.filter_jit
    def mark(v: Any) -> Any:
        return v._var_metadata["mark"], v[...]

    for n in [0, 0, 1, 1, 0, 2, 2]:
        nnx.Variable._var_metadata.__set__(variable, {**variable._var_metadata, "mark": n})  # the last one is freed
        assert mark(variable)[0] == n


def test_a_flat_state_with_other_paths_or_values_is_another() -> None:
    def flat(**values: Any) -> Any:
        return nnx.to_flat_state(nnx.State(values))

    traces = []

    @partax.filter_jit
    def one_more(state: Any) -> Any:
        traces.append(1)
        return jax.tree.map(lambda x: x + 1, state)

    a, b = jnp.ones(1), jnp.zeros(2)
    seen = []
    for state in [flat(a=a, b=b), flat(a=a, b=b), flat(a=a, c=b), flat(a=a), flat(), flat(a={"x": a}), flat(b=b, a=a)]:
        assert_exact(one_more(state), jax.tree.map(lambda x: x + 1, state))
        assert_exact(one_more(one_more(state)), jax.tree.map(lambda x: x + 2, state))
        seen.append(len(traces))
    assert seen == [1, 1, 2, 3, 4, 5, 5]
    state = flat(a=a, b=b)
    state._values.append(a)  # a list that is longer than the paths, which are all that the functions tell of it
    assert len(one_more(state)._values) == 3
    state._values.pop()
    assert_exact(one_more(state), jax.tree.map(lambda x: x + 1, state))


def _with_a_version(make: Callable[..., Any]) -> Callable[..., Any]:
    def unflatten(*given: Any) -> Any:
        made = make(*given)
        made.__dict__["version"] = 2
        return made

    return unflatten


def test_another_version_of_flax_is_told_of_and_left_to_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nnx.Pytree, "_pytree__unflatten", _with_a_version(nnx.Pytree._pytree__unflatten))

    class Newer(nnx.Pytree):
        def __init__(self) -> None:
            self.weight = nnx.data(jnp.ones(1))

    f = partax.filter_jit(lambda tree: tree)
    for _ in range(2):
        assert f(Newer()).version == 2
    (node,) = f.report().slow_nodes
    assert (node.type, node.count, node.because) == ("Newer", 1, "unflattening makes another object")


def test_a_flax_without_what_is_known_of_it_is_told_of_and_left_to_its_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Newer(nnx.Pytree):
        def __init__(self) -> None:
            self.weight = nnx.data(jnp.ones(1))

    monkeypatch.delattr(nnx, "tracers")
    f = partax.filter_jit(lambda tree: tree)
    assert f([Newer(), Bag(1)])[0].weight.tolist() == [1.0]
    reasons = {node.type: node.because for node in f.report().slow_nodes}
    assert "tracers" in reasons["Newer"] and reasons["Bag"] == ""


def test_a_mapping_of_nodes_that_changes_in_place_is_seen() -> None:
    def model() -> Any:
        return nnx.List([nnx.Param(jnp.ones(1)), nnx.Param(jnp.zeros(1))])

    traces: list[str] = []

    def body(name: str, tree: Any) -> Any:
        traces.append(name)
        return jax.tree.leaves(tree)[0] + 1

    ours, plain = partax.filter_jit(lambda tree: body("ours", tree)), jax.jit(lambda tree: body("jax.jit", tree))
    first, second = model(), model()
    nodes = vars(second)["_pytree__nodes"]._mapping
    for n in range(3):
        for tree in (first, second, first, second):
            assert_exact(ours(tree), plain(tree))
        # Of `second` a key holds the mapping itself from its own first trace on, as with jax.jit.
        assert traces.count("ours") == traces.count("jax.jit") == min(n + 1, 2)
        nodes[f"more {n}"] = False
