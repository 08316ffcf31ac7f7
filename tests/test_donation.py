"""Donation gives away exactly the buffers that were promised, by mode or by argument name."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import TraceCounter
from partax import filter_jit
from trees import array, assert_close, assert_same

UNUSABLE = "Some donated buffers were not usable"


def deleted(*trees: Any) -> list[bool]:
    """Whether all arrays of each tree are gone; they must share one fate."""
    fates = []
    for tree in trees:
        fate = {x.is_deleted() for x in jax.tree.leaves(tree) if isinstance(x, jax.Array)}
        assert len(fate) == 1
        fates.append(fate.pop())
    return fates


def three(a: Any, b: Any, c: Any) -> Any:
    return a + 1, {"b": [x * 2 for x in b]}, c - 1


def call_three(f: Any, *, keywords: bool = False) -> list[bool]:
    a, b, c = array(4), [array(5), array(6)], array(7)
    out = f(c=c, b=b, a=a) if keywords else f(a, b, c)
    assert_same(out, (array(4) + 1, {"b": [array(5) * 2, array(6) * 2]}, array(7) - 1))
    return deleted(a, b, c)


MODES: list[tuple[Any, list[bool]]] = [
    ("none", [False, False, False]),
    ("all", [True, True, True]),
    ("warn", [True, True, True]),
    ("all-except-first", [False, True, True]),
    ("warn-except-first", [False, True, True]),
    (("a",), [True, False, False]),
    (("b",), [False, True, False]),
    (("c", "a"), [True, False, True]),
    (["b", "c"], [False, True, True]),
    ((), [False, False, False]),
]


@pytest.mark.parametrize(("donate", "gone"), MODES)
@pytest.mark.parametrize("keywords", [False, True])
def test_modes_and_names(donate: Any, gone: list[bool], keywords: bool) -> None:
    f = filter_jit(three, donate=donate)
    for _ in range(3):
        assert call_three(f, keywords=keywords) == gone


def test_nothing_is_donated_by_default() -> None:
    assert call_three(filter_jit(three)) == [False, False, False]


@pytest.mark.parametrize("donate", ["all", ("x",)])
def test_the_output_has_the_buffer_of_the_input(donate: Any) -> None:
    f = filter_jit(lambda x: x + 1, donate=donate)
    x = array(100)
    for i in range(1, 4):
        pointer = x.unsafe_buffer_pointer()
        y = f(x)
        assert x.is_deleted() and y.unsafe_buffer_pointer() == pointer
        x = y
        assert_same(x, array(100, start=i))


def test_static_leaves_and_numpy_arrays_are_untouched() -> None:
    f = filter_jit(lambda tree, n: (tree["x"] + n, tree["n"]), donate="all")
    numbers = np.arange(64, dtype=np.float32)
    for _ in range(3):
        assert_same(f({"x": numbers, "n": 3}, 2), (array(64, start=2), 3))
        np.testing.assert_array_equal(numbers, np.arange(64))


class Counter(eqx.Module):
    """A module whose method gives a new state."""

    buffer: jax.Array
    rest: list[jax.Array]
    name: str = eqx.field(static=True, default="counter")

    def step(self, x: jax.Array) -> Any:
        return x - 1, Counter(self.buffer + 1, [r * 2 for r in self.rest])

    __call__ = filter_jit(step, donate="all")
    keep_self = filter_jit(step, donate="all-except-first")
    only_self = filter_jit(step, donate=("self",))


def counter() -> Counter:
    return Counter(array(1000), [array(3), array(2)])


def test_self_of_a_method_is_an_argument() -> None:
    for method, gone in (("__call__", True), ("keep_self", False), ("only_self", True)):
        c, x = counter(), array(5)
        bound = getattr(c, method)
        y, after = bound(x)
        assert_same(y, array(5) - 1)
        assert_same(after, Counter(array(1000) + 1, [array(3) * 2, array(2) * 2]))
        assert deleted(c) == [gone]
        assert x.is_deleted() == (method != "only_self")


@pytest.mark.parametrize("donate", ["all", "warn", "all-except-first"])
def test_arrays_of_the_wrapped_callable_are_donated(donate: str) -> None:
    c, x = counter(), array(7)
    _, after = filter_jit(c.step, donate=donate)(x)
    assert_same(after.buffer, array(1000) + 1)
    assert deleted(c) == [True]
    assert x.is_deleted() == (donate != "all-except-first")


def test_named_donation_leaves_the_wrapped_callable_alone() -> None:
    c, x = counter(), array(1000)
    fun = jax.tree_util.Partial(lambda c, x: (x + 1, c.buffer * 2), c)
    wrapped = filter_jit(fun, donate=("x",))
    assert_same(wrapped(x), (array(1000) + 1, array(1000) * 2))
    assert deleted(c, x) == [False, True]


def test_returned_modules_chain_into_the_next_call_with_one_trace(traces: TraceCounter) -> None:
    class M(eqx.Module):
        mlp: eqx.nn.MLP
        count: jax.Array

        @filter_jit(donate="all")
        def __call__(self, x: jax.Array) -> Any:
            traces.tick()
            return self.mlp(x), eqx.tree_at(lambda m: m.count, self, self.count + 1)

    m = M(eqx.nn.MLP(3, 3, 4, 2, key=jax.random.key(0)), jnp.zeros(()))
    expected = m.mlp(jnp.ones(3))
    for i in range(1, 5):
        before = m.count
        y, m = m(jnp.ones(3))
        assert_close(y, expected)
        assert before.is_deleted() and float(m.count) == i
    assert traces.count == 1


def test_names_of_a_train_step() -> None:
    @filter_jit(donate=("model", "opt_state"))
    def step(model: Any, batch: Any, opt_state: Any, *, rate: float = 0.5) -> Any:
        new = jax.tree.map(lambda m, s: m - rate * s, model, opt_state)
        return new, jax.tree.map(jnp.negative, opt_state), jnp.sum(batch)

    batch = array(8)
    model, state = {"w": array(2, 3)}, {"w": jnp.ones((2, 3))}
    for _ in range(3):
        old = (model, state)
        model, state, total = step(model, batch, opt_state=state)
        assert deleted(*old, batch) == [True, True, False] and float(total) == 28
    assert_same(model, {"w": array(2, 3) - 0.5})


def test_variadic_arguments_can_be_named() -> None:
    @filter_jit(donate=("rest",))
    def f(x: Any, *rest: Any, **options: Any) -> Any:
        return x + 1, [r + 1 for r in rest], options["y"] + 1

    x, a, b, y = array(4), array(5), array(6), array(7)
    f(x, a, b, y=y)
    assert deleted(x, [a, b], y) == [False, True, False]


# --- forwarding wins over donation


@pytest.mark.parametrize("donate", ["all", "all-except-first", ("model", "x")])
def test_a_forwarded_leaf_is_not_donated(donate: Any) -> None:
    @filter_jit(donate=donate)
    def f(first: Any, model: Any, x: jax.Array) -> Any:
        return {"frozen": model["frozen"], "w": model["w"] + first}, x * 2

    first, x = jnp.ones(()), array(5)
    model = {"frozen": array(100), "w": array(4)}
    for _ in range(3):
        old, (model, y) = model, f(first, model, x)
        assert model["frozen"] is old["frozen"] and not model["frozen"].is_deleted()
        assert old["w"].is_deleted() and x.is_deleted()
        first, x = jnp.ones(()), array(5)
        assert_same(y, array(5) * 2)
    assert_same(model, {"frozen": array(100), "w": array(4) + 3})


def test_a_leaf_returned_twice_survives_donation() -> None:
    f = filter_jit(lambda x, y: (x, x, y + 1), donate="all")
    for _ in range(2):
        x, y = array(4), array(5)
        first, second, third = f(x, y)
        assert first is x and y.is_deleted()
        assert_same((first, second, third), (array(4), array(4), array(5) + 1))


# --- warnings and errors


def unusable(x: Any, y: Any) -> Any:
    return jnp.sum(x) + jnp.sum(y)


@pytest.mark.parametrize("donate", ["none", "all", "all-except-first"])
def test_quiet_modes_never_warn(donate: str) -> None:
    f = filter_jit(unusable, donate=donate)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(f(array(3), array(10))) == 48
        assert float(f(array(3), array(10))) == 48


@pytest.mark.parametrize("donate", ["warn", "warn-except-first"])
def test_warn_modes_warn_exactly_once(donate: str) -> None:
    f = filter_jit(unusable, donate=donate)
    with pytest.warns(UserWarning, match=UNUSABLE) as record:
        assert float(f(array(3), array(10))) == 48
    assert len(record) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(f(array(3), array(10))) == 48


def test_quiet_modes_let_other_warnings_through() -> None:
    @filter_jit(donate="all")
    def f(x: jax.Array) -> jax.Array:
        warnings.warn("mine", UserWarning, stacklevel=1)
        return x + 1

    with pytest.warns(UserWarning, match="mine") as record:
        f(array(3))
    assert len(record) == 1


@pytest.mark.parametrize("donate", ["yes", "", "ALL", None, 1, True, ("a", 1), "a"])
def test_a_wrong_mode_is_a_value_error(donate: Any) -> None:
    with pytest.raises(ValueError, match="donate"):
        filter_jit(three, donate=donate)
    with pytest.raises(ValueError, match="donate"):
        filter_jit(donate=donate)(three)


@pytest.mark.parametrize("donate", [("model",), ("a", "model"), ["model"]])
def test_a_name_the_function_does_not_have_is_an_error_at_decoration(donate: Any) -> None:
    with pytest.raises(ValueError, match="model"):
        filter_jit(three, donate=donate)


def test_a_donated_argument_cannot_be_used_again() -> None:
    f = filter_jit(lambda x, y: x + y, donate=("x",))
    x, y = array(4), array(4)
    f(x, y)
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        f(x, y)
    assert_same(f(array(4), y), array(4) * 2)
