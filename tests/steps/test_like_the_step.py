"""Guards the promise that a chunk is what calls of the step would be: with its options, and as the step
is now; and that a Python number is carried with the arrays around it, or if `carry` names it, and otherwise stays
unchanged; and that arrays of weak type have the dtypes of single steps."""

import copy
import dataclasses
import functools
import pathlib
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from conftest import TraceCounter

ONE = np.ones(2, "f4")
RATE = 1.0


def first() -> dict[str, Any]:
    return {"w": jnp.zeros(2)}


def values(chunks: Any) -> list[float]:
    return [float(state["w"][0]) for state, _ in chunks]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Owner:
    weight: Any

    def __call__(self, state: Any, x: Any) -> Any:
        return {"w": state["w"] * 0 + self.weight}, x


@pytest.mark.parametrize("is_method", [False, True])
def test_a_change_of_an_array_that_the_step_has_is_seen(is_method: bool) -> None:
    owner = Owner(np.ones(2, "f4"))
    run = partax.scan_steps(partax.filter_jit(owner.__call__ if is_method else owner), 2)
    for value in (1.0, 2.0, 1.0):
        owner.weight.fill(value)
        assert values(run(first(), over=[ONE] * 5)) == [value] * 3
    seen = []
    for chunk in run(first(), over=[ONE] * 7):  # also in the middle of a run
        seen += values([chunk])
        owner.weight.fill(seen[-1] + 1)
    assert seen == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("stored", [False, True])
def test_clear_cache_of_the_step_clears_the_chunks(
    stored: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(state: Any, x: Any) -> Any:
        return {"w": state["w"] * 0 + RATE}, x

    jitted = partax.filter_jit(step, store=str(tmp_path) if stored else None)
    run = partax.scan_steps(jitted, 2)
    for value in (1.0, 2.0, 3.0):
        monkeypatch.setitem(globals(), "RATE", value)
        jitted.clear_cache()
        for batch in (ONE, np.ones(3, "f4")):
            assert values(run(first(), over=[batch] * 5)) == [value] * 3
    seen = []
    for chunk in run(first(), over=[ONE] * 7):
        seen += values([chunk])
        monkeypatch.setitem(globals(), "RATE", seen[-1] + 1)
        jitted.clear_cache()
    assert seen == [3.0, 4.0, 5.0, 6.0]


def test_runs_share_their_chunks_while_nothing_changes(traces: TraceCounter) -> None:
    step = partax.filter_jit(lambda state, x: (traces.tick(), ({"w": state["w"] + x.sum()}, x))[1])
    run = partax.scan_steps(step, 2)
    for width in (2, 3, 2, 3, 2):
        list(run(first(), over=[np.ones(width, "f4")] * 5))
    assert traces.count == 8  # of a chunk, and of one step of the rest: by itself and in the scan, for two shapes


def by_position(x: Any, state: Any, scale: Any) -> Any:
    return {"w": state["w"] + x * scale}, scale * 1


def by_name(state: Any, /, x: Any, scale: Any, *, unused: int = 1) -> Any:
    return by_position(x, state, scale)


def by_any_name(x: Any, state: Any, **more: Any) -> Any:
    return by_position(x, state, more["scale"])


@pytest.mark.parametrize(
    ("step", "donate"),
    [
        (by_position, "all-except-first"),
        (by_position, ("x", "scale")),
        (by_name, "all-except-first"),
        (by_name, ("state",)),
        (by_any_name, ("x", "more")),
    ],
)
def test_options_mean_the_arguments_of_the_step(step: Any, donate: Any) -> None:
    jitted, deleted = partax.filter_jit(step, donate=donate), []
    chunk = lambda *args, **kwargs: list(partax.scan_steps(jitted, 1, carry={"state": 0})(*args, over=[ONE], **kwargs))
    for call in (functools.partial(jitted, x=ONE), chunk):
        state, scale = first(), jnp.ones(2)
        call(state, scale=scale) if step is by_name else call(scale=scale, state=state)
        deleted.append((state["w"].is_deleted(), scale.is_deleted()))
    assert deleted[0] == deleted[1]


def test_options_mean_a_step_that_is_an_object_too() -> None:
    owner, state = Owner(jnp.ones(2)), first()
    list(partax.scan_steps(partax.filter_jit(owner, donate=("state",)), 1)(state, over=[ONE]))
    assert state["w"].is_deleted() and not owner.weight.is_deleted()


def counting(state: Any, x: Any) -> Any:
    return {"n": state["n"] + 1, "w": state["w"] + x, "mean": state["mean"] * 0.5 + x.mean()}, state["n"]


@pytest.mark.parametrize("count", [1, 4, 9])
def test_numbers_settle_in_the_rest_as_in_chunks_and_a_copy_runs_alike(count: int) -> None:
    run = partax.scan_steps(partax.filter_jit(counting), 4, carry={"state": 0}, unroll=2)
    for one in (run, pickle.loads(pickle.dumps(run)), copy.deepcopy(run)):
        chunks = list(one({"n": 0, "w": jnp.zeros(2), "mean": 0.0}, over=[ONE] * count))
        assert [n for _, numbers in chunks for n in numbers.tolist()] == list(range(count))
        assert int(chunks[-1][0]["n"]) == count
        assert float(chunks[-1][0]["mean"]) == pytest.approx(2 - 2 * 0.5**count) and repr(one) == repr(run)


# ---- Numbers and weak types.


@pytest.mark.parametrize(("count", "increment", "expected"), [(0, 1, 5), (({"i": 0}, None), 1, 5), (1, 0.5, 3.5)])
def test_a_number_that_a_step_changes_is_carried_if_carry_names_it(count: Any, increment: float, expected: Any) -> None:
    def step(state: Any, count: Any, x: Any) -> Any:
        return {"w": state["w"] + x}, jax.tree.map(lambda number: number + increment, count)

    jitted, over = partax.filter_jit(step), [ONE] * 5
    with pytest.raises(ValueError, match=r"of the type of `count`.*carry={'state': 0, 'count': 1}"):
        list(partax.scan_steps(jitted, 2)({"w": ONE}, count, over=over))
    chunks = list(partax.scan_steps(jitted, 2, carry={"state": 0, "count": 1})({"w": ONE}, count, over=over))
    assert jax.tree.leaves(chunks[-1][1]) == [expected]


def test_a_number_that_carry_does_not_name_stays_unchanged() -> None:
    step = partax.filter_jit(lambda state, n, x: ({"w": state["w"] + n * x}, n + 1))
    *_, (state, _) = partax.scan_steps(step, 2, carry={"state": 0})({"w": ONE}, 2, over=[ONE] * 4)
    assert state["w"].tolist() == [9.0, 9.0]


def test_an_array_cannot_follow_a_number() -> None:
    step = partax.filter_jit(lambda s, x: {"n": x, "w": s["w"]})
    with pytest.raises(TypeError, match=r"s.*\['n'\]`: 0 before the step, float32\[2\] after it"):
        list(partax.scan_steps(step, 2, carry={"s": ()})({"n": 0, "w": ONE}, over=[ONE] * 2))


@pytest.mark.parametrize("scale", [1.5, 2])
def test_weak_types_of_a_carry_settle(scale: Any) -> None:
    def step(state: Any, x: Any) -> Any:
        return {"scale": state["scale"] * x[0], "w": state["w"] + x}, state["scale"] * x

    state = {"scale": jnp.asarray(scale), "w": jnp.zeros(2, "bfloat16")}
    jitted, over = partax.filter_jit(step), [jnp.full(2, 0.5, "bfloat16")] * 5
    chunks, expected = list(partax.scan_steps(jitted, 2)(state, over=over)), []
    for x in over:
        state, out = jitted(state, x)
        expected.append(out)
    assert (jnp.concatenate([out for _, out in chunks]) == jnp.stack(expected)).all()
    assert jax.tree.map(jax.typeof, chunks[-1][0]) == jax.tree.map(jax.typeof, state)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weak_types_of_batches_promote_as_in_single_steps(dtype: str) -> None:
    step = partax.filter_jit(lambda state, x: ({"w": state["w"] * 1}, state["w"] * x))
    state = {"w": jnp.ones(2, dtype)}
    for batch in (jnp.asarray(2.0), jnp.float32(2), np.float32(2), jnp.asarray(2)):
        [(_, products)] = partax.scan_steps(step, 3)(state, over=[batch] * 3)
        assert products.dtype == step(state, batch)[1].dtype
