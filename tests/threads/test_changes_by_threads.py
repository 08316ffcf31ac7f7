"""Guards threads of which one changes, clears or drops what another is calling with, also objects of Flax, chex, penzai
and jax's Partial: each call sees it as it was at one moment, and nothing is kept alive."""

from __future__ import annotations

import functools
import gc
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from at_once import HANGS_AFTER, all_right, assert_equal, switching, together
from counting import pause
from library_trees import PAIRS, parts_of
from partax import filter_jit
from trees import array

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    with switching():
        yield


class Config:
    """A static value that nothing but the key's trace may keep."""


@pytest.mark.parametrize(
    "disturb",
    [
        lambda wrapped: wrapped.clear_cache(),
        lambda wrapped: filter_jit(wrapped.__wrapped__, cache_size=1)._cache.info(),
        lambda _: [filter_jit(lambda x, i=i: x + i)(array(2)) for i in range(3)],
        lambda _: gc.collect(),
    ],
    ids=["clear_cache", "cache_info", "other wrappers", "collect"],
)
def test_the_cache_is_disturbed_while_a_call_is_in_jax(disturb: Callable[[Any], Any]) -> None:
    tracing, disturbed = threading.Event(), threading.Event()

    @functools.partial(filter_jit, cache_size=1)
    def wrapped(x: jax.Array, config: Any, n: int) -> Any:
        tracing.set()
        assert disturbed.wait(60)
        return {"x": x + n, "n": n, "config": config}

    def disturbs() -> None:
        assert tracing.wait(60)
        disturb(wrapped)
        disturbed.set()

    result, _ = together(lambda: wrapped(array(2), Config(), 7), disturbs)
    assert_equal(result["x"], array(2) + 7)
    assert result["n"] == 7 and type(result["config"]) is Config


class KeepsAList:
    """Its flatten function gives its own list, which others may change."""

    def __init__(self, children: list[Any]) -> None:
        self.children = children


jax.tree_util.register_pytree_node(KeepsAList, lambda it: (it.children, 1), lambda _, children: KeepsAList([*children]))


class Empties:
    def __init__(self, children: list[Any]) -> None:
        self.children = children

    def __hash__(self) -> int:
        self.children.clear()
        return 1


def test_a_list_that_a_node_keeps_is_emptied_while_it_is_walked() -> None:
    """What another thread may do at this point, done in the walk itself."""
    children: list[Any] = []
    children += [Empties(children), array(2), array(2)]
    with pytest.raises(RuntimeError, match="changed size"):
        filter_jit(lambda tree: 1)(KeepsAList(children))


@pytest.mark.parametrize("wraps", ["itself", "an argument"])
def test_a_callable_that_another_thread_changes_while_it_is_traced_is_known_by_identity(wraps: str) -> None:
    factors, read, changed = [2], threading.Event(), threading.Event()

    def f(x: jax.Array) -> jax.Array:
        factor = factors[0]
        read.set()
        assert changed.wait(HANGS_AFTER)
        return x * factor

    def change() -> None:
        assert read.wait(HANGS_AFTER)
        factors[0] = 3
        changed.set()

    wrapped = filter_jit(f) if wraps == "itself" else functools.partial(filter_jit(lambda g, x: g(x)), f)
    found, _ = together(lambda: wrapped(array(2)), change)
    assert_equal(found, array(2) * 2)
    for factors[0] in (3, 2, 5):  # as for jax.jit, the trace that it has is its trace
        assert_equal(wrapped(array(2)), array(2) * 2)
    factors[0] = 3
    assert_equal(wrapped(array(5)), array(5) * 3)


def rounds(count: int, seen: Callable[[], Any]) -> Iterator[int]:
    """So many, and more for half a minute, until what luck decides has been seen."""
    end = time.monotonic() + 30
    for i in itertools.count():
        if i >= count and (seen() or time.monotonic() > end):
            return
        yield i


CHANGED = {name: make for name, make in PAIRS.items() if parts_of(make(array(1), array(1), 1)) is not None}


@pytest.mark.parametrize("make", CHANGED.values(), ids=CHANGED)
def test_an_object_that_another_thread_changes_is_read_as_it_is_at_one_moment(
    make: Callable[[Any, Any, Any], Any],
) -> None:
    stop, seen = threading.Event(), Counter[float]()
    shared = make(array(2), array(2), 1)
    parts: Any = parts_of(shared)
    # An array, or a static value, at a place of its own.
    place: Any = 0 if isinstance(parts, list) else next(reversed([k for k in parts if not str(k).startswith("_")]))
    first = parts[place]
    is_array = isinstance(first, jax.Array)
    values = [array(2) * n for n in (1, 2, 3)] if is_array else [1, 2, 3]

    @filter_jit
    def told(tree: Any, x: Any) -> Any:
        found = parts_of(tree)[place]  # type: ignore[index]
        pause()
        return (found if is_array else None), found * x, (None if is_array else found)

    def changes() -> None:
        while not stop.is_set():
            for value in values:
                parts[place] = value
                pause()

    def work() -> None:
        for _ in rounds(40, lambda: len(seen) == 3):
            try:
                given, product, static = told(shared, array(2))
            except RuntimeError as error:
                assert "changed" in str(error), error
                continue
            assert any(given is value for value in values) if is_array else static in values
            assert_equal(product, (given if is_array else static) * array(2))
            seen[float(np.sum(product))] += 1

    parts[place] = values[0]
    told(make(array(2), array(2), 1), array(2))  # what its class does is found out of an object that stays as it is
    thread = threading.Thread(target=changes, daemon=True)
    thread.start()
    try:
        all_right(together(work, work, work))
    finally:
        stop.set()
        thread.join()
    assert len(seen) == 3, seen
    for value in values[::-1]:
        parts[place] = value
        assert_equal(told(shared, array(2))[1], value * array(2))
