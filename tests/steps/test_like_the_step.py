"""Guards the promise that a chunk is what calls of the step would be: called in its way, with its options, and as the
step is now."""

import copy
import dataclasses
import functools
import itertools
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax

ONE = np.ones(2, "f4")
Set = Callable[[float], None]


def first() -> dict[str, Any]:
    return {"w": jnp.zeros(2)}


def filled(state: Any, value: Any) -> Any:
    return {"w": state["w"] * 0 + value}


def values(chunks: Any) -> list[float]:
    return [float(state["w"][0]) for state, _ in chunks]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Owner:
    held: Any

    def __call__(self, state: Any, x: Any) -> Any:
        return filled(state, self.held), x


def in_a_step_that_is_an_object() -> tuple[Any, Set]:
    owner = Owner(jnp.ones(2))
    return owner, lambda value: setattr(owner, "held", jnp.full(2, value))


def in_the_owner_of_a_method() -> tuple[Any, Set]:
    owner = Owner(np.ones(2, "f4"))
    return owner.__call__, owner.held.fill


HOLDERS = [in_a_step_that_is_an_object, in_the_owner_of_a_method]


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_change_of_an_array_that_the_step_holds_is_seen(holder: Callable[[], tuple[Any, Set]]) -> None:
    step, change = holder()
    run = partax.scan_steps(partax.filter_jit(step), 2)
    for value in (1.0, 2.0, 3.0, 2.0, 1.0):
        change(value)
        assert values(run(first(), over=[ONE] * 5)) == [value] * 3
    seen = []
    for chunk in run(first(), over=[ONE] * 7):  # also in the middle of a run
        seen += values([chunk])
        change(seen[-1] + 1)
    assert seen == [1.0, 2.0, 3.0, 4.0]


RATE = 1.0


@pytest.mark.parametrize("donate", ["all", ("state",)])
def test_options_mean_a_step_that_is_an_object_too(donate: Any) -> None:
    gone = []
    for call in (
        lambda step, *args: step(*args, ONE),
        lambda step, *args: [*partax.scan_steps(step, 1)(*args, over=[ONE])],
    ):
        (owner, _), state = in_a_step_that_is_an_object(), first()
        call(partax.filter_jit(owner, donate=donate), state)
        gone.append((owner.held.is_deleted(), state["w"].is_deleted()))
    assert gone[0] == gone[1]


@pytest.mark.parametrize("stored", [False, True])
def test_clear_cache_of_the_step_is_that_of_the_chunk(
    stored: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = partax.filter_jit(lambda state, x: (filled(state, RATE), x), store=str(tmp_path) if stored else None)
    run, again = partax.scan_steps(step, 2), partax.scan_steps(step, 2)
    for value in (1.0, 2.0, 3.0):
        monkeypatch.setitem(globals(), "RATE", value)
        step.clear_cache()
        for one, batch in ((run, ONE), (again, ONE), (run, np.ones(3, "f4"))):
            assert values(one(first(), over=[batch] * 5)) == [value] * 3
    seen = []
    for chunk in run(first(), over=[ONE] * 7):
        seen += values([chunk])
        monkeypatch.setitem(globals(), "RATE", seen[-1] + 1)
        step.clear_cache()
    assert seen == [3.0, 4.0, 5.0, 6.0]


def test_runs_have_their_chunks_in_common_while_nothing_changes() -> None:
    traces: list[int] = []

    def step(state: Any, x: Any) -> Any:
        traces.append(1)
        return {"w": state["w"] + x.sum()}, x

    run = partax.scan_steps(partax.filter_jit(step), 2)
    for width in (2, 3, 2, 3, 2):
        list(run(first(), over=[np.ones(width, "f4")] * 5))
    assert len(traces) == 8  # of a chunk, and of one step of the rest: by itself and in the scan, for two shapes


def by_position(x: Any, state: Any, scale: Any) -> Any:
    return {"w": state["w"] + x * scale}, scale * 1


def by_name(state: Any, /, x: Any, scale: Any, *, unused: int = 1) -> Any:
    return by_position(x, state, scale)


def by_any_name(x: Any, state: Any, **more: Any) -> Any:
    return by_position(x, state, more["scale"])


@pytest.mark.parametrize(
    ("step", "donate"),
    [
        *itertools.product([by_position, by_name], ["all-except-first", ("state",), ("x", "scale")]),
        (by_any_name, ("x", "more")),
    ],
)
def test_options_mean_the_arguments_of_the_step(step: Any, donate: Any) -> None:
    jitted, gone = partax.filter_jit(step, donate=donate), []
    chunk = lambda *args, **kwargs: list(partax.scan_steps(jitted, 1, carry={"state": 0})(*args, over=[ONE], **kwargs))
    for call in (functools.partial(jitted, x=ONE), chunk):
        state, scale = first(), jnp.ones(2)
        call(state, scale=scale) if step is by_name else call(scale=scale, state=state)
        gone.append((state["w"].is_deleted(), scale.is_deleted()))
    assert gone[0] == gone[1]


def counting(state: Any, x: Any) -> Any:
    return {"n": state["n"] + 1, "w": state["w"] + x, "mean": state["mean"] * 0.5 + x.mean()}, state["n"]


@pytest.mark.parametrize("count", [1, 4, 9])
def test_numbers_settle_in_the_rest_as_in_chunks(count: int) -> None:
    run = partax.scan_steps(partax.filter_jit(counting), 4)
    chunks = list(run({"n": 0, "w": jnp.zeros(2), "mean": 0.0}, over=[ONE] * count))
    assert [it for _, numbers in chunks for it in numbers.tolist()] == list(range(count))
    assert int(chunks[-1][0]["n"]) == count and float(chunks[-1][0]["mean"]) == pytest.approx(2 - 2 * 0.5**count)


def test_what_has_run_is_copied() -> None:
    run = partax.scan_steps(partax.filter_jit(counting), 3, carry={"state": 0}, unroll=2)
    for again in (pickle.loads(pickle.dumps(run)), run, copy.deepcopy(run)):
        found = [n.tolist() for _, n in again({"n": 0, "w": jnp.zeros(2), "mean": 0.0}, over=[ONE] * 4)]
        assert repr(again) == repr(run) and found == [[0, 1, 2], [3]]
