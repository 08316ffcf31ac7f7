"""Guards the promise that a Python number is carried with the arrays beside it, or where `carry` says so, or else stays
as it is; and that arrays of weak type, carried or in batches, give in a chunk the dtypes of single steps."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax

ONE = np.ones(2, "f4")


class Config(NamedTuple):
    rate: Any
    by: Any = None


FIXED: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    # The argument, what the step takes of it, and what it returns beside its state, which has that structure.
    "a float": (3.0, lambda rate: rate, lambda x: x.sum()),
    "a bool": (True, lambda flag: 3 if flag else 0, lambda x: x.sum() > 100),
    "deep": ({"a": [Config(3.0)]}, lambda tree: tree["a"][0].rate, lambda x: {"a": [Config(x.sum())]}),
    "two, one of which is an array then": ([3.0, 1], lambda pair: pair[0], lambda x: [x.sum(), 1]),
}


@pytest.mark.parametrize("name", FIXED)
def test_numbers_alone_stay(name: str) -> None:
    fixed, rate_of, metric_of = FIXED[name]

    def step(state: Any, fixed: Any, x: Any) -> Any:
        assert type(rate_of(fixed)) in (int, float)
        return {"w": state["w"] + rate_of(fixed) * x}, metric_of(x)

    chunks = list(partax.scan_steps(partax.filter_jit(step), 2)({"w": jnp.zeros(2)}, fixed=fixed, over=[ONE] * 5))
    assert chunks[-1][0]["w"].tolist() == [15, 15]


CHANGED: dict[str, tuple[Any, Callable[[Any], Any], str, Any]] = {
    # The argument, what a step makes of it, the place that the message names, and the numbers after five steps.
    "a counter": (0, lambda i: i + 1, "`count`: 0 before a step, 1 after it", 5),
    "a whole rate": (1, lambda rate: rate * 0.5, "`count`: 1 before a step, 0.5 after it", 0.03125),
    "a flag": (False, lambda flag: True, "`count`: False before a step, True after it", True),
    "in a tree": (
        Config({"i": 0}, 3),
        lambda tree: Config({"i": tree.rate["i"] + 1}, tree.by),
        r"`count.rate\['i'\]`: 0 before a step, 1 after it",
        Config({"i": 5}, 3),
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_number_that_a_step_changes_is_refused_with_what_carries_it(name: str) -> None:
    first, change, message, expected = CHANGED[name]

    def step(state: Any, count: Any, x: Any) -> Any:
        return {"w": state["w"] + x}, change(count)

    jitted, over = partax.filter_jit(step), [ONE] * 5
    with pytest.raises(TypeError, match=message) as error:
        list(partax.scan_steps(jitted, 2)({"w": ONE}, first, over=over))
    assert "carry={'state': 0, 'count': 1}" in str(error.value)
    chunks = list(partax.scan_steps(jitted, 2, carry={"state": 0, "count": 1})({"w": ONE}, first, over=over))
    assert jax.tree.leaves(chunks[-1][1]) == jax.tree.leaves(expected)


def test_a_number_that_is_not_carried_by_decision_stays() -> None:
    step = partax.filter_jit(lambda state, n, x: ({"w": state["w"] + n * x}, n + 1))
    *_, (state, _) = partax.scan_steps(step, 2, carry={"state": 0})({"w": ONE}, 2, over=[ONE] * 4)
    assert state["w"].tolist() == [9.0, 9.0]


def test_an_array_cannot_follow_a_number() -> None:
    step = partax.filter_jit(lambda s, x: {"n": x, "w": s["w"]})
    for carry in (None, {"s": ()}):
        with pytest.raises(TypeError, match=r"s.*\['n'\]`: (a number|0) before (a|the) step, float32\[2\] after it"):
            list(partax.scan_steps(step, 2, carry=carry)({"n": 0, "w": ONE}, over=[ONE] * 2))


@pytest.mark.parametrize("begun", [1.5, 2])
def test_weak_types_of_a_carry_settle(begun: Any) -> None:
    def step(state: Any, x: Any) -> Any:
        return {"scale": state["scale"] * x[0], "w": state["w"] + x}, state["scale"] * x

    state = {"scale": jnp.asarray(begun), "w": jnp.zeros(2, "bfloat16")}
    jitted, over = partax.filter_jit(step), [jnp.full(2, 0.5, "bfloat16")] * 5
    chunks, right = list(partax.scan_steps(jitted, 2)(state, over=over)), []
    for x in over:
        state, out = jitted(state, x)
        right.append(out)
    assert (jnp.concatenate([it for _, it in chunks]) == jnp.stack(right)).all()
    assert jax.tree.map(jax.typeof, chunks[-1][0]) == jax.tree.map(jax.typeof, state)
    assert chunks[-1][0]["scale"].dtype == "bfloat16"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weak_types_of_batches_promote_as_in_single_steps(dtype: str) -> None:
    step = partax.filter_jit(lambda state, x: ({"w": state["w"] * 1}, state["w"] * x))
    state = {"w": jnp.ones(2, dtype)}
    for one in (jnp.asarray(2.0), jnp.float32(2), np.float32(2), jnp.asarray(2)):
        [(_, found)] = partax.scan_steps(step, 3)(state, over=[one] * 3)
        assert found.dtype == step(state, one)[1].dtype
