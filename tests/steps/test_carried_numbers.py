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

    run, first = partax.scan_steps(partax.filter_jit(step), 2), {"w": jnp.zeros(2)}
    over = [ONE] * count
    chunks = list(run(first, fixed=fixed, over=over) if by_name else run(first, fixed, over=over))
    assert chunks[-1][0]["w"].tolist() == [3 * count] * 2


@pytest.mark.parametrize("carry", ["count", {"count": 1}])
def test_numbers_alone_are_carried_where_that_is_said(carry: Any) -> None:
    def step(state: Any, count: Any, x: Any) -> Any:
        return {"w": state["w"] + x}, count + 1

    both = ("state", "count") if carry == "count" else {"state": 0, **carry}
    chunks = list(partax.scan_steps(partax.filter_jit(step), 2, carry=both)({"w": ONE}, 0, over=[ONE] * 5))
    assert [int(count) for _, count in chunks] == [2, 4, 5]


CHANGED: dict[str, tuple[Any, Callable[[Any], Any], str, Any]] = {
    # The argument, what a step makes of it, the place that the message names, and the numbers after five steps.
    "a counter": (0, lambda i: i + 1, r"`result\[1\]`: found 1 where `count` was 0", 5),
    "a rate": (1.0, lambda rate: rate * 0.5, r"`result\[1\]`: found 0.5 where `count` was 1.0", 0.03125),
    "a whole rate": (1, lambda rate: rate * 0.5, r"`result\[1\]`: found 0.5 where `count` was 1,", 0.03125),
    "a flag": (False, lambda flag: True, r"`result\[1\]`: found True where `count` was False", True),
    "in a dictionary": (
        {"i": 0, "n": 3},
        lambda it: {"i": it["i"] + 1, "n": it["n"]},
        r"`result\[1\]`: found 1 where `count\['i'\]` was 0",
        {"i": 5, "n": 3},
    ),
    "in a named tuple": (
        Config(0, 3),
        lambda it: it._replace(rate=it.rate + 1),
        r"`result\[1\]`: found 1 where `count.rate` was 0",
        Config(5, 3),
    ),
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("by_name", [False, True])
def test_a_number_that_a_step_changes_is_refused_with_what_carries_it(name: str, by_name: bool) -> None:
    first, change, message, expected = CHANGED[name]

    def step(state: Any, count: Any, x: Any) -> Any:
        return {"w": state["w"] + x}, change(count)

    jitted, over = partax.filter_jit(step), [ONE] * 5
    given = ((), {"state": {"w": ONE}, "count": first}) if by_name else (({"w": ONE}, first), {})
    with pytest.raises(ValueError, match=message) as error:
        list(partax.scan_steps(jitted, 2)(*given[0], over=over, **given[1]))
    assert "carry={'state': 0, 'count': 1}" in str(error.value)
    chunks = list(partax.scan_steps(jitted, 2, carry={"state": 0, "count": 1})(*given[0], over=over, **given[1]))
    assert jax.tree.leaves(chunks[-1][1]) == jax.tree.leaves(expected)


def test_a_number_that_is_not_carried_by_decision_stays() -> None:
    step = partax.filter_jit(lambda state, n, x: ({"w": state["w"] + n * x}, n + 1))
    *_, (state, _) = partax.scan_steps(step, 2, carry=("state",))({"w": ONE}, 2, over=[ONE] * 4)
    assert state["w"].tolist() == [9.0, 9.0]


def test_a_number_that_trace_makes_an_array_is_not_passed_over() -> None:
    def step(state: Any, i: Any, x: Any) -> Any:
        return {"w": state["w"] + i * x}, i + 1

    traced = partax.filter_jit(step, dynamic=("i",))
    with pytest.raises(ValueError, match=r"'i', an array or scalars alone, .* as carry="):
        list(partax.scan_steps(traced, 2)({"w": ONE}, 0, over=[ONE] * 4))
    *_, (state, i) = partax.scan_steps(traced, 2, carry=("state", "i"))({"w": ONE}, 0, over=[ONE] * 4)
    assert (state["w"].tolist(), int(i)) == ([7.0, 7.0], 4)


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
        list(partax.scan_steps(partax.filter_jit(WRONG[message]), 2, carry=carry)({"n": 0, "w": ONE}, over=[ONE] * 2))


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
        [(_, found)] = partax.scan_steps(step, 3, carry="state")(state, over=[one] * 3)
        assert found.dtype == step(state, one)[1].dtype
