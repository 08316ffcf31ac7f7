"""Guards the promise that a batch counts as it was when it was taken, whatever its iterator does to it later."""

import collections
import dataclasses
import itertools
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


def zeros(*shape: int) -> Callable[[], Any]:
    return lambda: np.zeros(shape, "f4")


def full(i: int) -> Any:
    return np.full(2, i, "f4")


# One object, and what is done to it to give the next batch.
CHANGED: dict[str, tuple[Callable[[], Any], Callable[[Any, int], Any]]] = {
    "an array": (zeros(2), lambda it, i: (it.fill(i), it)[1]),
    "views": (zeros(3, 2), lambda it, i: (it[i % 3].fill(i), it[i % 3])[1]),
    "sometimes another": (
        zeros(2, 2),
        lambda it, i: (it.fill(i), jnp.full((2, 2), i, "f4") if i in (0, 2, 5) else it.T)[1],
    ),
    "a dictionary": (lambda: {"name": "a"}, lambda it, i: (it.update(x=full(i)), it)[1]),
    "an object": (lambda: Batch(None), lambda it, i: (setattr(it, "x", {"a": [full(i)]}), it)[1]),
}


def emptied_after_each() -> Iterator[Any]:
    batch: dict[str, Any] = {}
    for i in range(COUNT):
        batch["x"] = [full(i)]
        yield batch
        batch["x"].clear()


@pytest.mark.parametrize("name", [*CHANGED, "emptied after each"])
@pytest.mark.parametrize("size", [3, COUNT + 1])
def test_a_batch_counts_as_it_was_taken(name: str, size: int) -> None:
    def changed() -> Iterator[Any]:
        make, change = CHANGED[name]
        batch = make()
        yield from (change(batch, i) for i in range(COUNT))

    def step(state: Any, batch: Any) -> Any:
        value = next(it for it in jax.tree.leaves(batch) if not isinstance(it, str))
        return {"w": state["w"] + value.ravel()[0]}, value.ravel()[0]

    over = changed() if name in CHANGED else emptied_after_each()
    chunks = list(partax.scan_steps(partax.filter_jit(step), size)({"w": jnp.zeros(())}, over=over))
    assert [it for _, values in chunks for it in values.tolist()] == list(range(COUNT))
    assert float(chunks[-1][0]["w"]) == sum(range(COUNT))


def test_an_iterator_that_begins_again_ends() -> None:
    count = 3

    def taken(i: int) -> Any:
        if i % (count + 1) == count:
            raise StopIteration
        return full(i)

    run = partax.scan_steps(partax.filter_jit(lambda state, x: ({"w": state["w"] + x}, x)), 2)
    chunks = itertools.islice(run({"w": jnp.zeros(2)}, over=map(taken, itertools.count())), 9)
    assert sum(len(x) for _, x in chunks) == count


def test_a_batch_with_a_name_for_each_argument() -> None:
    def both() -> Iterator[Any]:
        batch = {"y": np.zeros(2, "f4"), "x": None}
        for i in range(COUNT):
            batch["y"][:], batch["x"] = i, np.full(3, 10 * i)  # type: ignore[index]
            yield batch

    step = partax.filter_jit(lambda state, x, y: ({"w": state["w"] + x[0]}, y[0]))
    named = collections.namedtuple("named", "y x")
    for over in (both(), (named(**it) for it in both())):
        found = [it for _, y in partax.scan_steps(step, 3)({"w": jnp.zeros((), int)}, over=over) for it in y.tolist()]
        assert found == list(range(COUNT))


def test_nothing_is_kept_of_a_batch_but_its_values() -> None:
    batches = [jnp.asarray(full(i)) if i % 2 else full(i) for i in range(4)]
    step = partax.filter_jit(lambda state, batch: ({"w": state["w"] + batch}, batch))
    results = list(partax.scan_steps(step, 2)({"w": jnp.zeros(2)}, over=batches))
    for batch in batches:
        batch.delete() if isinstance(batch, jax.Array) else batch.fill(-1)
    assert [it[:, 0].tolist() for _, it in results] == [[0, 1], [2, 3]]


SHAPES = {
    "a short last one": [4, 4, 4, 2],
    "in each epoch": [4, 4, 4, 2] * 3,
    "two in a row": [4, 4, 2, 3, 4],
    "longer than the first": [2, 4, 4],
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("size", [2, 8])
def test_a_batch_of_another_shape_is_a_step_by_itself(name: str, size: int) -> None:
    over = [np.ones((rows, 3), "f4") * (i + 1) for i, rows in enumerate(SHAPES[name])]

    @partax.filter_jit
    def step(state: Any, x: Any) -> Any:
        return {"w": state["w"] * 0.5 + x.sum(0)}, x.mean(), x

    state, means = {"w": jnp.zeros(3)}, []
    for x in over:
        state, mean, _ = step(state, x)
        means.append(float(mean))
    chunks = list(partax.scan_steps(step, size)({"w": jnp.zeros(3)}, over=over))
    assert chunks[-1][0]["w"].tolist() == state["w"].tolist()
    assert [it for _, values, _ in chunks for it in values.tolist()] == means
    assert [len(row) for _, _, rows in chunks for row in rows] == SHAPES[name]
