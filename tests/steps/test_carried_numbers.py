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
    "a float": (3.0, lambda it: it, lambda x: x.sum()),
    "an int": (3, lambda it: it, lambda x: x.sum().astype(int)),
    "a bool": (True, lambda it: 3 if it else 0, lambda x: x.sum() > 100),
    "a vector beside it": (3.0, lambda it: it, lambda x: x * 2),
    "a number beside it": (3.0, lambda it: it, lambda _: 4.0),
    "in a dictionary": ({"rate": 3.0}, lambda it: it["rate"], lambda x: {"rate": x.sum()}),
    "in a named tuple": (Config(3), lambda it: it.rate, lambda x: Config(x.sum())),
    "two, one of which is an array then": ([3.0, 1], lambda it: it[0], lambda x: [x.sum(), 1]),
    "deep": ({"a": [Config(3.0)]}, lambda it: it["a"][0].rate, lambda x: {"a": [Config(x.sum())]}),
}


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("count", [2, 4, 5])
def test_numbers_alone_stay(name: str, by_name: bool, count: int) -> None:
    fixed, rate_of, beside = FIXED[name]

    def step(state: Any, fixed: Any, x: Any) -> Any:
        assert type(rate_of(fixed)) in (int, float)
        return {"w": state["w"] + rate_of(fixed) * x}, beside(x)

    run, first = partax.steps(partax.filter_jit(step), 2), {"w": jnp.zeros(2)}
    over = [ONE] * count
    chunks = list(run(first, fixed=fixed, over=over) if by_name else run(first, fixed, over=over))
    assert chunks[-1][0]["w"].tolist() == [3 * count] * 2


@pytest.mark.parametrize("carry", ["count", {"count": 1}])
def test_numbers_alone_are_carried_where_that_is_said(carry: Any) -> None:
    def step(state: Any, count: Any, x: Any) -> Any:
        return {"w": state["w"] + x}, count + 1

    both = ("state", "count") if carry == "count" else {"state": 0, **carry}
    chunks = list(partax.steps(partax.filter_jit(step), 2, carry=both)({"w": ONE}, 0, over=[ONE] * 5))
    assert [int(count) for _, count in chunks] == [2, 4, 5]


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    r"`s\['w'\]`: float32\[2\] before a step, bfloat16\[2\] after it": (
        lambda s, x: {"n": x.sum(), "w": s["w"].astype("bfloat16")}
    ),
    r"`s\['w'\]`: float32\[2\] before a step, float32\[\] after it": lambda s, x: {"n": s["n"] + 1, "w": x.sum()},
    r"`s\['n'\]`: a number before a step, float32\[2\] after it, in `result`;": lambda s, x: {"n": x, "w": s["w"]},
    r"`s\['n'\]`: a number before a step, float32\[2\] after it": lambda s, x: {"n": x, "w": s["w"] + 0},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_stand_for_a_number_is_named(message: str) -> None:
    carry = {"s": ()} if message.endswith("after it") else None
    with pytest.raises(TypeError, match=message):
        list(partax.steps(partax.filter_jit(WRONG[message]), 2, carry=carry)({"n": 0, "w": ONE}, over=[ONE] * 2))


@pytest.mark.parametrize("begun", [1.5, 2])
def test_weak_types_of_a_carry_settle(begun: Any) -> None:
    def step(state: Any, x: Any) -> Any:
        return {"scale": state["scale"] * x[0], "w": state["w"] + x}, state["scale"] * x

    state = {"scale": jnp.asarray(begun), "w": jnp.zeros(2, "bfloat16")}
    jitted, over = partax.filter_jit(step), [jnp.full(2, 0.5, "bfloat16")] * 5
    chunks, right = list(partax.steps(jitted, 2)(state, over=over)), []
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
        [(_, found)] = partax.steps(step, 3, carry="state")(state, over=[one] * 3)
        assert found.dtype == step(state, one)[1].dtype
