"""Guards the promise that arrays of weak type, carried or in batches, give in a chunk the dtypes of single steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax


@pytest.mark.parametrize(("begun", "settled"), [(jnp.asarray(1.5), "bfloat16"), (jnp.asarray(2), "bfloat16")])
def test_weak_types_of_a_carry_settle(begun: Any, settled: str) -> None:
    def step(state: Any, x: Any) -> Any:
        return {"scale": state["scale"] * x[0], "w": state["w"] + x}, state["scale"] * x

    state = {"scale": begun, "w": jnp.zeros(2, "bfloat16")}
    jitted, over = partax.filter_jit(step), [jnp.full(2, 0.5, "bfloat16")] * 5
    chunks, right = list(partax.steps(jitted, 2)(state, over=over)), []
    for x in over:
        state, out = jitted(state, x)
        right.append(out)
    assert (jnp.concatenate([it for _, it in chunks]) == jnp.stack(right)).all()
    assert jax.tree.map(jax.typeof, chunks[-1][0]) == jax.tree.map(jax.typeof, state)
    assert chunks[-1][0]["scale"].dtype == settled


def test_weak_types_of_batches_promote_as_in_single_steps() -> None:
    step = partax.filter_jit(lambda state, x: ({"w": state["w"] + x}, state["w"] * x))
    for over in ([jnp.asarray(2.0)] * 3, [jnp.float32(2)] * 3, [np.float32(2)] * 3, [jnp.asarray(2)] * 3):
        [(_, found)] = partax.steps(step, 3, carry="state")({"w": jnp.ones(2, "float32")}, over=over)
        assert found.dtype == step({"w": jnp.ones(2, "float32")}, over[0])[1].dtype
    low = partax.filter_jit(lambda state, x: ({"w": state["w"] * 1}, state["w"] * x))
    for one in (jnp.asarray(2.0), jnp.float32(2)):
        [(_, found)] = partax.steps(low, 3)({"w": jnp.ones(2, "bfloat16")}, over=[one] * 3)
        assert found.dtype == low({"w": jnp.ones(2, "bfloat16")}, one)[1].dtype
