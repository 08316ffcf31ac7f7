"""Guards the promise that a Python number is carried with the arrays around it, or if `carry` names it, and otherwise
stays unchanged; and that arrays of weak type have the dtypes of single steps in a chunk."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax

ONE = np.ones(2, "f4")


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
