"""Guards the promise that static results are those of the trace, as in Equinox: containers are fresh copies, what is an
argument's static value is the call's own, and no other function's calls get an object that one has returned."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax
from conftest import TraceCounter
from partax import filter_jit
from trees import array


class Equal:
    """All of these are equal, and yet each is one of its own."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Equal

    def __hash__(self) -> int:
        return 1


class Config:
    def __init__(self, rate: float = 0.5) -> None:
        self.rate = rate

    def get(self) -> float:
        return self.rate


class Module(eqx.Module):
    value: Any


class OnlyStatic(eqx.Module):
    value: Any = eqx.field(static=True)


CONFIG = Config()

# What changes a result, of which each call gets its own.
CHANGEABLE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Any]] = {
    "list": (lambda: [1], lambda it: it.append(2), [1]),
    "set": (lambda: {1}, lambda it: it.add(2), {1}),
    "dict": (lambda: {"a": 1}, lambda it: it.update(a=2), {"a": 1}),
    "list in a tuple": (lambda: (1, [1]), lambda it: it[1].append(2), (1, [1])),
}


@pytest.mark.parametrize(("make", "change", "expected"), CHANGEABLE.values(), ids=CHANGEABLE)
@pytest.mark.parametrize("hold", [lambda it: it, Module, OnlyStatic])
def test_what_a_caller_changes_no_other_call_gets(hold: Any, make: Any, change: Any, expected: Any) -> None:
    f = filter_jit(lambda x: (x + 1, {"held": hold(make())}))
    for _ in range(3):
        held = f(array(2))[1]["held"]
        got = held if hold not in (Module, OnlyStatic) else held.value
        assert got == expected
        change(got)


# What a function returns that is no array, and no argument's.
RETURNED: dict[str, Callable[[], Any]] = {
    "a global object": lambda: CONFIG,
    "an object of its own": Config,
    "a method": lambda: CONFIG.get,
    "a function": lambda: lambda x: x,
    "a marker": object,
    "a class": lambda: Config,
    "a state of Equinox": lambda: eqx.nn.State({"model": eqx.nn.StateIndex(jnp.ones(2))}),
}


@pytest.mark.parametrize("make", RETURNED.values(), ids=RETURNED)
@pytest.mark.parametrize("jit", [filter_jit, partax.nnx.jit, eqx.filter_jit])
def test_a_returned_object_is_that_of_the_only_trace(jit: Any, make: Any, traces: TraceCounter) -> None:
    f = jit(lambda x: (traces.seen(x) + 1, make()))
    results = [jax.tree.leaves(f(array(2))[1], is_leaf=lambda it: not isinstance(it, eqx.nn.State)) for _ in range(3)]
    assert traces.count == 1
    for one, other in itertools.pairwise(results):
        assert all(a is b or isinstance(a, (jax.Array, type(CONFIG.get))) for a, b in zip(one, other, strict=True))


def test_a_state_of_equinox_goes_round_in_one_trace(traces: TraceCounter) -> None:
    model, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch", mode="batch")

    @filter_jit
    def step(model: Any, state: Any, x: Any) -> Any:
        traces.tick()
        return jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)

    for _ in range(4):
        _, state = step(model, state, jnp.ones((4, 3)))
    assert traces.count == 1


@pytest.mark.parametrize("make", [lambda: lambda x: x + 1, Equal], ids=["function", "value"])
@pytest.mark.parametrize("hold", [lambda it: it, lambda it: [it, 1], Module, OnlyStatic])
@pytest.mark.parametrize("jit", [filter_jit, partax.nnx.jit])
def test_an_argument_comes_back_as_the_calls_own(jit: Any, hold: Any, make: Any, traces: TraceCounter) -> None:
    f = jit(lambda a, x: (hold(a) if hold is OnlyStatic else jax.tree.map(lambda it: it, a), traces.seen(x)))

    def inside(held: Any) -> Any:
        return held.value if isinstance(held, Module | OnlyStatic) else held[0] if type(held) is list else held

    objects = make(), make(), make()
    for own in (*objects, *objects):
        given = own if hold is OnlyStatic else hold(own)
        assert inside(f(given, array(2))[0]) is own
    assert traces.count == 1


def test_arguments_that_change_places_come_back_by_place(traces: TraceCounter) -> None:
    f = filter_jit(lambda a, b, x: ({"b": b, "a": a}, traces.seen(x)))
    one, two = Equal(), Equal()
    assert [f(one, two, array(2))[0], f(two, one, array(2))[0]] == [{"b": two, "a": one}, {"b": one, "a": two}]
    first, second = f(one, two, array(2))[0], f(two, one, array(2))[0]
    assert (first["a"], first["b"]) is not None and first["a"] is one and first["b"] is two
    assert second["a"] is two and second["b"] is one and traces.count == 1


def test_a_function_made_again_returns_its_own_object() -> None:
    """Also where the earlier one held an equal object, which its owner has changed since."""
    for rate in (0.5, 0.5, 0.25):
        config = Config(rate)
        f = filter_jit(lambda x: (x * config.rate, config))  # noqa: B023
        for _ in range(2):
            scaled, returned = f(jnp.ones(()))
            assert returned is config and float(scaled) == rate
        config.rate = 7.0


# Marks by which what a call makes is told from all else.
MARKED: dict[str, Callable[[], Any]] = {
    "alone": lambda: object(),
    "several, in a tree": lambda: [object(), {"a": object()}],
    "of a state": lambda: eqx.nn.StateIndex(jnp.ones(2)),
    "a bound method": lambda: Config().get,
}


def marks(made: Any) -> list[Any]:
    if isinstance(made, eqx.nn.StateIndex):
        return [made.marker]
    return [getattr(it, "__self__", it) for it in jax.tree.leaves(made)]


@pytest.mark.parametrize("make", MARKED.values(), ids=MARKED)
def test_a_mark_belongs_to_the_function_that_made_it(make: Callable[[], Any]) -> None:
    """Two functions made again have two, as by `jax.jit` of each; calls of one share it, as in Equinox."""
    results = [filter_jit(lambda x: (x, make()))(jnp.ones(2))[1] for _ in range(3)]
    all_marks = [mark for result in results for mark in marks(result)]
    assert all_marks and len({id(mark) for mark in all_marks}) == len(all_marks)


def test_a_function_made_again_whose_results_hold_no_object_is_traced_once(traces: TraceCounter) -> None:
    def make(n: int) -> Any:
        def f(x: Any) -> Any:
            traces.tick()
            model = eqx.nn.MLP(2, 2, 2, 1, activation=lambda x: x * n, key=jax.random.key(0))
            return model, jax.nn.relu, jnp.sin, "text", n, None, object, (1, 2), [n], lambda: n, jnp.float32

        return filter_jit(f)

    for n in (300_000, 300_000, 300_001, 300_000):
        assert make(n)(array(2))[4] == n
    assert traces.count == 2
