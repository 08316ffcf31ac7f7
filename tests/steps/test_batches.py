"""Guards the promise that a batch counts as it was when it was taken, whatever its iterator does to it later."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax

COUNT = 7


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Batch:
    x: Any


def refilled_array() -> Iterator[Any]:
    buffer = np.zeros(2, "f4")
    for i in range(COUNT):
        buffer[:] = i
        yield buffer


def refilled_scalar() -> Iterator[Any]:
    buffer = np.zeros((), "f4")
    for i in range(COUNT):
        buffer[...] = i
        yield buffer


def refilled_views() -> Iterator[Any]:
    buffer = np.zeros((3, 2), "f4")
    for i in range(COUNT):
        buffer[i % 3] = i
        yield buffer[i % 3]


def refilled_and_unsteady() -> Iterator[Any]:
    buffer = np.zeros((2, 2), "f4")
    for i in range(COUNT):
        buffer[:] = i
        yield jnp.full((2, 2), i, "f4") if i in (0, 2, 5) else buffer.T


def changed_dictionary() -> Iterator[Any]:
    batch: dict[str, Any] = {"name": "a"}
    for i in range(COUNT):
        batch["x"] = np.full(2, i, "f4")
        yield batch


def changed_object() -> Iterator[Any]:
    batch = Batch(None)
    for i in range(COUNT):
        batch.x = {"a": [np.full(2, i, "f4")]}
        yield batch


def emptied_after_each() -> Iterator[Any]:
    batch: dict[str, Any] = {}
    for i in range(COUNT):
        batch["x"] = [np.full(2, i, "f4")]
        yield batch
        batch["x"].clear()


ITERATORS = (
    *(refilled_array, refilled_scalar, refilled_views, refilled_and_unsteady),
    *(changed_dictionary, changed_object, emptied_after_each),
)


@pytest.mark.parametrize("iterator", ITERATORS)
@pytest.mark.parametrize("size", [1, 3, COUNT, COUNT + 1])
def test_a_batch_counts_as_it_was_taken(iterator: Callable[[], Iterator[Any]], size: int) -> None:
    def step(state: Any, batch: Any) -> Any:
        value = next(it for it in jax.tree.leaves(batch) if not isinstance(it, str))
        return {"w": state["w"] + value.ravel()[0]}, value.ravel()[0]

    run = partax.steps(partax.filter_jit(step), size)
    chunks = list(run({"w": jnp.zeros(())}, over=iterator()))
    assert [it for _, values in chunks for it in values.tolist()] == list(range(COUNT))
    assert float(chunks[-1][0]["w"]) == sum(range(COUNT))


def test_a_batch_with_a_name_for_each_argument() -> None:
    def both() -> Iterator[Any]:
        batch = {"y": np.zeros(2, "f4"), "x": None}
        for i in range(COUNT):
            batch["y"][:], batch["x"] = i, np.full(3, 10 * i)  # type: ignore[index]
            yield batch

    step = partax.filter_jit(lambda state, x, y: ({"w": state["w"] + x[0]}, y[0]))
    found = [it for _, y in partax.steps(step, 3)({"w": jnp.zeros((), int)}, over=both()) for it in y.tolist()]
    assert found == list(range(COUNT))


@pytest.mark.parametrize("on_device", [False, True])
def test_nothing_is_kept_of_a_batch_but_its_values(on_device: bool) -> None:
    batches = [jnp.full(2, i, "f4") if on_device else np.full(2, i, "f4") for i in range(4)]
    step = partax.filter_jit(lambda state, batch: ({"w": state["w"] + batch}, batch))
    results = list(partax.steps(step, 2)({"w": jnp.zeros(2)}, over=batches))
    for batch in batches:
        batch.delete() if isinstance(batch, jax.Array) else batch.fill(-1)
    assert [it[:, 0].tolist() for _, it in results] == [[0, 1], [2, 3]]
