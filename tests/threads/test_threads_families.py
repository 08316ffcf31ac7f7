"""Guards threads with objects of Flax, chex, penzai and jax's Partial: each key is traced once, and what another thread
changes in place meanwhile is seen as it was at one moment."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from test_threads import (
    all_right,
    assert_equal,
    beside,
    rounds,
    switching_as_often_as_possible,  # noqa: F401
)

from counting import pause
from library_trees import PAIRS, parts_of
from partax import filter_jit
from trees import array

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose

Make = Callable[[Any, Any, Any], Any]


CHANGED = {name: make for name, make in PAIRS.items() if parts_of(make(array(1), array(1), 1)) is not None}


@pytest.mark.parametrize("make", CHANGED.values(), ids=CHANGED)
def test_an_object_that_another_thread_changes_is_read_as_it_is_at_one_moment(make: Make) -> None:
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
    all_right(beside(changes, stop, work, work, work))
    assert len(seen) == 3, seen
    for value in values[::-1]:
        parts[place] = value
        assert_equal(told(shared, array(2))[1], value * array(2))
