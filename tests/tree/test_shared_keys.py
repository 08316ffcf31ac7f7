"""Guards that each Variable of a result has metadata of its own, as Flax makes it, and that nothing is done to it which
is done to another's, though dictionaries that are copies of one share their keys."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings

import partax
from partax._compat.shared_keys import to_copy
from reference import assert_exact

nnx = pytest.importorskip("flax.nnx", reason="Flax is not here")

KEYS = st.one_of(
    st.text(max_size=3),
    st.sampled_from(["__class__", "__dict__", "__doc__", "__hash__", "__", "mark"]),
    st.integers(0, 40).map(str),
)
METADATA = st.dictionaries(
    KEYS, st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()), max_size=40
)
CHANGES: dict[str, Callable[[dict[Any, Any]], Any]] = {
    "set": lambda metadata: metadata.update(dict.fromkeys(metadata, "set")),
    "added": lambda metadata: metadata.update({f"more {n}": n for n in range(40)}),
    "popped": lambda metadata: metadata.popitem() if metadata else None,
    "deleted from the front": lambda metadata: [metadata.pop(key) for key in list(metadata)[:3]],
    "cleared": lambda metadata: metadata.clear(),
    "cleared and filled": lambda metadata: (metadata.clear(), metadata.update(z=1, mark=2)),
    "another key": lambda metadata: metadata.__setitem__(3, "three"),
}
changes = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


def is_the_same(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    """Whether two dictionaries have the same objects in the same order."""
    return [*map(id, one), *map(id, one.values())] == [*map(id, other), *map(id, other.values())]


@changes
@given(entries=METADATA)
def test_a_copy_is_what_dict_copies(change: Callable[[dict[Any, Any]], Any], entries: dict[str, Any]) -> None:
    before = dict(entries)
    pattern = to_copy(entries)
    one, other, plain = pattern.copy(), pattern.copy(), dict(entries)
    assert is_the_same(one, plain) and sys.getsizeof(one) <= sys.getsizeof(plain)
    change(one)
    change(plain)
    assert list(one.items()) == list(plain.items())
    assert is_the_same(other, before) and is_the_same(pattern, before) and is_the_same(entries, before)


@pytest.mark.parametrize("entries", [{}, {1: 2}, {"a": 1, 2: 3}, {("a",): 1}], ids=str)
def test_other_keys_than_names_are_no_hindrance(entries: dict[Any, Any]) -> None:
    assert is_the_same(to_copy(entries).copy(), entries)


def variable(array: jax.Array, metadata: dict[str, Any]) -> Any:
    made = nnx.Variable(array)
    made._var_metadata.update(metadata)
    return made


@changes
@settings(deadline=None)  # it compiles
@given(first=METADATA, second=METADATA)
def test_variables_of_a_result_share_no_metadata(
    change: Callable[[dict[Any, Any]], Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    def make(array: jax.Array) -> Any:
        return [variable(array + n, metadata) for n, metadata in enumerate([first, second, first, second, first])]

    jitted = partax.filter_jit(make)
    for _ in range(2):
        results = [jitted(jnp.ones(2)) for _ in range(2)]
        expected = jax.tree.map(lambda array: array, make(jnp.ones(2)))  # Flax orders metadata by key
        metadata = [[v._var_metadata for v in result] for result in results]
        assert_exact([list(each.items()) for each in metadata[0]], [list(v._var_metadata.items()) for v in expected])
        untouched = [dict(each) for each in metadata[1]]
        change(metadata[0][2])
        change(expected[2]._var_metadata)
        assert_exact([list(each.items()) for each in metadata[0]], [list(v._var_metadata.items()) for v in expected])
        assert all(map(is_the_same, metadata[1], untouched))


def equal_variables() -> Any:
    """Equal ones each time; of their metadata only the numbers are the same objects."""
    return [
        variable(jnp.ones(2), {"note": ("a", str(3 * n).zfill(n)), "number": n, "last": frozenset([n])}) for n in (3, 4)
    ]


def test_a_call_with_equal_metadata_gets_its_own_objects() -> None:
    traces = []

    @partax.filter_jit
    def doubled(variables: Any) -> Any:
        traces.append(len(variables))
        return [jax.tree.map(lambda array: array * 2, variables) for _ in range(2)]

    calls = [equal_variables() for _ in range(3)]
    for variables in calls + calls[::-1]:
        for result in doubled(variables):
            for made, came_in in zip(result, variables, strict=True):
                assert made._var_metadata == came_in._var_metadata
                for key in ("note", "number", "last"):
                    assert made.get_metadata(key) is came_in.get_metadata(key)
        first, second = doubled(variables)
        first[0]._var_metadata["number"] = "changed"
        assert second[0].get_metadata("number") == variables[0].get_metadata("number") == 3
    assert traces == [2]


def test_a_trace_that_is_dropped_lets_go_of_the_metadata() -> None:
    jitted = partax.filter_jit(lambda array: nnx.Variable(array, mark=lambda: None))
    seen = weakref.ref(jitted(jnp.ones(2)).get_metadata("mark"))
    assert seen() is jitted(jnp.ones(2)).get_metadata("mark")
    jitted.clear_cache()
    gc.collect()
    assert seen() is None
