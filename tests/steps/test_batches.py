"""Guards the promise that a batch counts as it was when it was taken, whatever the iterator does to it later."""

import collections
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax

COUNT = 7


def full(i: int) -> Any:
    return np.full(2, i, "f4")


def filled_again() -> Iterator[Any]:
    batch = np.zeros(2, "f4")
    for i in range(COUNT):
        batch.fill(i)
        yield batch


def views_of_one_array() -> Iterator[Any]:
    array = np.zeros((3, 2), "f4")
    for i in range(COUNT):
        array[i % 3].fill(i)
        yield array[i % 3]


def on_the_host_or_a_device() -> Iterator[Any]:
    array = np.zeros((2, 2), "f4")
    for i in range(COUNT):
        array.fill(i)
        yield jnp.full((2, 2), i, "f4") if i in (0, 2, 5) else array.T


def emptied_after_each() -> Iterator[Any]:
    batch: dict[str, Any] = {"name": "a"}
    for i in range(COUNT):
        batch["x"] = [full(i)]
        yield batch
        batch["x"].clear()


@pytest.mark.parametrize("over", [filled_again, views_of_one_array, on_the_host_or_a_device, emptied_after_each])
@pytest.mark.parametrize("size", [3, COUNT + 1])
def test_a_batch_counts_as_it_was_when_it_was_taken(over: Callable[[], Iterator[Any]], size: int) -> None:
    def step(state: Any, batch: Any) -> Any:
        value = next(leaf for leaf in jax.tree.leaves(batch) if not isinstance(leaf, str))
        return {"w": state["w"] + value.ravel()[0]}, value.ravel()[0]

    chunks = list(partax.scan_steps(partax.filter_jit(step), size)({"w": jnp.zeros(())}, over=over()))
    assert [value for _, values in chunks for value in values.tolist()] == list(range(COUNT))
    assert float(chunks[-1][0]["w"]) == sum(range(COUNT))


def test_an_iterator_that_begins_again_ends() -> None:
    count = 3

    def next_batch(i: int) -> Any:
        if i % (count + 1) == count:
            raise StopIteration
        return full(i)

    run = partax.scan_steps(partax.filter_jit(lambda state, x: ({"w": state["w"] + x}, x)), 2)
    chunks = itertools.islice(run({"w": jnp.zeros(2)}, over=map(next_batch, itertools.count())), 9)
    assert sum(len(x) for _, x in chunks) == count


def test_a_batch_with_a_name_for_each_argument() -> None:
    step = partax.filter_jit(lambda state, x, y: ({"w": state["w"] + x[0]}, y[0]))
    named = collections.namedtuple("named", "y x")
    batches = [{"y": full(i), "x": np.full(3, 10 * i)} for i in range(COUNT)]
    for over in (batches, [named(**batch) for batch in batches]):
        results = partax.scan_steps(step, 3)({"w": jnp.zeros((), int)}, over=over)
        assert [value for _, y in results for value in y.tolist()] == list(range(COUNT))


def test_results_do_not_share_memory_with_a_batch() -> None:
    batches = [jnp.asarray(full(i)) if i % 2 else full(i) for i in range(4)]
    step = partax.filter_jit(lambda state, batch: ({"w": state["w"] + batch}, batch))
    results = list(partax.scan_steps(step, 2)({"w": jnp.zeros(2)}, over=batches))
    for batch in batches:
        batch.delete() if isinstance(batch, jax.Array) else batch.fill(-1)
    assert [rows[:, 0].tolist() for _, rows in results] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("shapes", [[4, 4, 4, 2] * 2, [4, 4, 2, 3, 4], [2, 4, 4]])
@pytest.mark.parametrize("size", [2, 8])
def test_a_batch_of_another_shape_is_a_step_by_itself(shapes: list[int], size: int) -> None:
    over = [np.ones((rows, 3), "f4") * (i + 1) for i, rows in enumerate(shapes)]

    @partax.filter_jit
    def step(state: Any, x: Any) -> Any:
        return {"w": state["w"] * 0.5 + x.sum(0)}, x.mean(), x

    state, means = {"w": jnp.zeros(3)}, []
    for x in over:
        state, mean, _ = step(state, x)
        means.append(float(mean))
    chunks = list(partax.scan_steps(step, size)({"w": jnp.zeros(3)}, over=over))
    assert chunks[-1][0]["w"].tolist() == state["w"].tolist()
    assert [value for _, values, _ in chunks for value in values.tolist()] == means
    assert [len(row) for _, _, rows in chunks for row in rows] == shapes
