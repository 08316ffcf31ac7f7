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
@pytest.mark.parametrize("hold", [Module, OnlyStatic])
def test_what_a_caller_changes_no_other_call_gets(hold: Any, make: Any, change: Any, expected: Any) -> None:
    f = filter_jit(lambda x: (x + 1, make(), hold(make())))
    for _ in range(3):
        _, value, holder = f(array(2))
        assert value == holder.value == expected
        change(value)
        change(holder.value)


# What a function returns that is no array, and no argument's.
RETURNED: dict[str, Callable[[], Any]] = {
    "a global object": lambda: CONFIG,
    "an object of its own": Config,
    "a function": lambda: lambda x: x,
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
        assert all(a is b or isinstance(a, jax.Array) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("make", [lambda: lambda x: x + 1, Equal], ids=["function", "value"])
@pytest.mark.parametrize("hold", [lambda it: it, Module, OnlyStatic])
@pytest.mark.parametrize("jit", [filter_jit, partax.nnx.jit])
def test_an_argument_comes_back_as_the_calls_own(jit: Any, hold: Any, make: Any, traces: TraceCounter) -> None:
    f = jit(lambda a, x: (hold(a) if hold is OnlyStatic else jax.tree.map(lambda it: it, a), traces.seen(x)))

    def inside(held: Any) -> Any:
        return held.value if isinstance(held, Module | OnlyStatic) else held

    objects = make(), make(), make()
    for own in (*objects, *objects):
        given = own if hold is OnlyStatic else hold(own)
        assert inside(f(given, array(2))[0]) is own
    assert traces.count == 1


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
