"""Guards the promise that what comes back is the call's own, or made for it, also where equal objects are in several
places of the call: no call gets another one's objects."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import time
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from at_once import at_once
from conftest import TraceCounter
from partax import filter_jit
from trees import Pair, array


class Equal:
    """All of these are equal, and yet each is one of its own."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Equal

    def __hash__(self) -> int:
        return 1


class Box:
    def __init__(self, value: Any = None) -> None:
        self.value = value

    def get(self) -> Any:
        return self.value


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any
    note: Any = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class Compared:
    value: Any

    def __eq__(self, other: object) -> bool:
        return type(other) is Compared

    def __hash__(self) -> int:
        return 1


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    value: Any


class Module(eqx.Module):
    value: Any


def counter() -> Callable[[], int]:
    count = 0

    def add() -> int:
        nonlocal count
        count += 1
        return count

    return add


# What holds an object, and how that is found again.
HOLDING: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": (lambda it: it, lambda held: held),
    "object": (Box, lambda held: held.value),
    "method": (lambda it: Box(it).get, lambda held: held()),
    "lambda in a module": (lambda it: Module(lambda: it), lambda held: held.value()),
    "dict": (lambda it: {"a": it}, lambda held: held["a"]),
    "frozen dataclass": (Frozen, lambda held: held.value),
    "field that does not compare": (lambda it: Frozen(1, it), lambda held: held.note),
    "class with its own equality": (Compared, lambda held: held.value),
    "slots": (Slotted, lambda held: held.value),
    "NamedTuple": (lambda it: Pair(it, 2), lambda held: held.left),
    "partial": (lambda it: functools.partial(len, it), lambda held: held.args[0]),
    "slice": (lambda it: slice(it), lambda held: held.stop),
    "default": (lambda it: lambda held=it: held, lambda held: held()),
    "closure": (lambda it: lambda: it, lambda held: held()),
}


@pytest.mark.parametrize(("hold", "held"), HOLDING.values(), ids=HOLDING)
@pytest.mark.parametrize("jit", [filter_jit, partax.nnx.jit])
def test_a_result_holds_the_calls_own_object(jit: Any, hold: Callable[[Any], Any], held: Callable[[Any], Any]) -> None:
    f = jit(lambda x, s: (x + 1, hold(s)))
    objects = Equal(), Equal(), Equal()
    for own in (*objects, *objects):
        assert held(f(array(2), own)[1]) is own


CHANGEABLE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (lambda: [1], lambda it: it.append(2), list),
    "set": (lambda: {1}, lambda it: it.add(2), sorted),
    "counter": (lambda: collections.Counter("a"), lambda it: it.update("b"), dict),
    "user dict": (lambda: collections.UserDict(a=1), lambda it: it.update(a=2), dict),
    "object": (lambda: Box(1), lambda it: setattr(it, "value", 2), lambda it: it.value),
    "namespace": (lambda: types.SimpleNamespace(value=1), lambda it: setattr(it, "value", 2), lambda it: it.value),
    "counter in a closure": (counter, lambda it: it(), lambda it: it()),
}


@pytest.mark.parametrize("holder", HOLDING)
@pytest.mark.parametrize("kind", CHANGEABLE)
def test_what_a_caller_changes_no_other_call_gets(holder: str, kind: str) -> None:
    (hold, held), (make, change, read) = HOLDING[holder], CHANGEABLE[kind]
    f = filter_jit(lambda x: (x + 1, Module(hold(make()))))
    expected, first = read(make()), held(f(array(2))[1].value)
    change(first)
    assert read(first) != expected
    for _ in range(2):
        assert read(held(f(array(2))[1].value)) == expected


async def asynchronous() -> Any:
    yield 1


def test_first_calls_in_threads_get_an_object_each() -> None:
    @filter_jit
    def f(x: Any) -> Any:
        time.sleep(0.05)  # so that all threads wait for one trace
        return x + 1, Box(1)

    boxes = [result[1] for result in at_once(lambda _: f(array(2)))]
    assert len({id(box) for box in boxes}) == 4


def test_first_calls_in_threads_that_donate_get_an_object_each_or_an_error() -> None:
    @filter_jit(donate="all")
    def f(x: Any) -> Any:
        time.sleep(0.05)
        return x + 1, Box(1)

    results = at_once(lambda _: f(array(2)))
    errors = [result for result in results if isinstance(result, Exception)]
    assert all("call the function once before the threads do" in str(error) for error in errors)
    assert len({id(result[1]) for result in results if result not in errors}) == 4 - len(errors) > 0


USED_UP: dict[str, Callable[[], Any]] = {
    "iterator of a list": lambda: iter([1]),
    "generator": lambda: (i for i in (1, 2)),
    "map": lambda: map(str, [1]),
    "asynchronous generator": asynchronous,
    "in a partial": lambda: functools.partial(next, iter([1])),
    "in a closure": lambda: (lambda it: lambda: next(it))(iter([1])),
    "in a frozen dataclass": lambda: Frozen(iter([1])),
}


def test_a_compiled_program_hands_no_object_out_twice() -> None:
    compiled = filter_jit(lambda x: (x + 1, Box(1))).lower(array(2)).compile()
    with pytest.raises(TypeError, match="can be changed"):
        compiled(array(2))


@pytest.mark.parametrize("make", USED_UP.values(), ids=USED_UP)
def test_what_is_used_up_is_refused_with_its_path(make: Callable[[], Any]) -> None:
    f = filter_jit(lambda x: (x + 1, {"a": make()}))
    for _ in range(2):
        with pytest.raises(TypeError, match=r"the result\[1\]\['a'\]: found a `.*`, which is used up"):
            f(array(2))


def test_what_does_not_change_and_holds_no_object_is_traced_once(traces: TraceCounter) -> None:
    @filter_jit
    def f(x: Any, n: int) -> Any:
        traces.tick()
        made = eqx.nn.MLP(2, 2, 2, 1, activation=lambda x: x * n, key=jax.random.key(0))
        return made, jax.nn.relu, jnp.sin, "text", 3, None, object, (1, 2), [n], lambda: n, Frozen(np.float32(n))

    for _ in range(3):
        f(array(2), 300_000)
        f(array(2), 300_000 + int("1"))
    assert traces.count == 2


def test_a_function_that_holds_nothing_of_the_calls_needs_none_of_its_objects(traces: TraceCounter) -> None:
    @filter_jit
    def f(x: Any, given: Any, other: Any) -> Any:
        traces.tick()
        return x + 1, Module(lambda: 3), Module(lambda: other), given

    one, two, three, four = (Equal() for _ in range(4))
    for given in (one, two, one, two):
        assert f(array(2), given, three)[3] is given
    assert traces.count == 1
    assert f(array(2), one, four)[2].value() is four
    assert traces.count == 2
    reasons = [trace.reason for trace in f.report().traces]
    assert reasons[1] == "other: another object than that which the result of an earlier trace holds"


@pytest.mark.parametrize(
    "body",
    [
        lambda x: (x, object()),
        lambda x: {"x": x, "mark": [object()]},
        lambda x: (x, eqx.nn.StateIndex(x)),
        lambda x: (x, (object(), {"a": object()})),
        lambda x: (x, lambda mark=object(): mark),  # noqa: B008
    ],
    ids=["a mark", "in a list", "of a state", "several", "in a default"],
)
def test_a_mark_of_its_own_belongs_to_its_function(body: Any) -> None:
    """Two functions made anew have two, as by `jax.jit` of each; calls of one may share it, as in Equinox."""

    def marks(result: Any) -> list[int]:
        found: list[Any] = [it for it in jax.tree.leaves(result) if type(it) is object]
        found += [it.__defaults__[0] for it in jax.tree.leaves(result) if isinstance(it, types.FunctionType)]
        found += [it.marker for it in result if isinstance(it, eqx.nn.StateIndex)] if type(result) is tuple else []
        kept.append(result)
        return [id(it) for it in found]

    kept: list[Any] = []
    functions = [types.FunctionType(body.__code__, body.__globals__, closure=body.__closure__) for _ in range(3)]
    found = [mark for fun in functions for mark in set(marks(filter_jit(fun)(jnp.ones(2))))]
    assert found and len(set(found)) == len(found)


X = jnp.arange(3.0)


class OnlyStatic(eqx.Module):
    function: Callable[..., Any] = eqx.field(static=True)


def function() -> Callable[..., Any]:
    def made(x: Any) -> Any:
        return x + 1

    return made


# What holds an object in an argument, and what of that is the object.
PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": (lambda it: it, lambda held: held),
    "tuple": (lambda it: (it, X), lambda held: held[0]),
    "dict": (lambda it: {"a": it}, lambda held: held["a"]),
    "partial": (lambda it: functools.partial(max, it), lambda held: held.args[0]),
    "dataclass": (lambda it: Frozen((1, it)), lambda held: held.value[1]),
    "module": (lambda it: Module((it, X)), lambda held: held.value[0]),
    "static field": (lambda it: OnlyStatic(it), lambda held: held.function),
}
PATTERNS = list(itertools.product(range(2), repeat=3))


@pytest.mark.parametrize("make", [function, Equal], ids=["function", "value"])
@pytest.mark.parametrize("holder", PLACES)
def test_every_place_gives_its_own_object(holder: str, make: Callable[[], Any], traces: TraceCounter) -> None:
    hold, held = PLACES[holder]

    def body(a: Any, b: Any, c: Any, x: Any) -> Any:
        traces.tick()
        return {"rolled": (b, c, a), "inside": (held(c), held(a)), "x": x + 1}

    f = partax.filter_jit(body)
    objects = make(), make()
    for _ in range(2):
        for pattern in PATTERNS:
            a, b, c = (hold(objects[i]) for i in pattern)
            got = f(a, b, c, X)
            assert [held(it) is held(own) for it, own in zip(got["rolled"], (b, c, a), strict=True)] == [True] * 3
            assert [it is held(own) for it, own in zip(got["inside"], (c, a), strict=True)] == [True] * 2
    if holder in ("partial", "dataclass"):  # made anew for each call: a part of one is no other's
        assert traces.count == 2 * len(PATTERNS)
    else:  # one for all the same, one that tells each two apart: never more than there are ways to be the same
        assert 1 < traces.count <= 5


def test_what_is_not_returned_or_is_a_constant_costs_no_trace(traces: TraceCounter) -> None:
    @partax.filter_jit
    def f(a: Any, b: Any, shape: Any, other: Any, x: Any) -> Any:
        traces.tick()
        return a(b(x)), shape, other

    one, shape = function(), OnlyStatic((2, 3.0, "text"))  # type: ignore[arg-type]
    f(one, one, shape, shape, X)
    f(function(), one, OnlyStatic((2, float("3"), "".join("text"))), shape, X)  # type: ignore[arg-type]
    f(one, function(), shape, shape, X + 1)
    assert traces.count == 2  # the body can ask whether the two functions are one


def test_a_function_that_is_inside_of_a_value_made_anew_too_needs_no_trace(traces: TraceCounter) -> None:
    @partax.filter_jit
    def f(it: Any, config: Any, x: Any) -> Any:
        traces.tick()
        return it, Frozen(lambda: it), x + 1

    one, two = function(), function()
    for _ in range(2):
        assert f(one, Frozen(one), X)[0] is one
    assert traces.count == 1
    got = f(two, Frozen(one), X)
    assert got[0] is two and got[1].value() is two
    got = f(two, Frozen(two), X)
    assert got[0] is two and got[1].value() is two


def test_the_reason_names_both_places() -> None:
    @partax.filter_jit
    def f(model: Any, step: Any, x: Any) -> Any:
        return model, step, x + 1

    both, other = function(), function()
    f({"a": both}, both, X)
    f({"a": both}, other, X)
    reasons = [trace.reason for trace in f.report().traces]
    assert reasons[1] == (
        "step: another object than model['a'], where an earlier trace had one object in both places and returned it"
    )


def test_a_compiled_call_refuses_what_its_trace_could_not_tell_apart() -> None:
    def body(a: Any, b: Any, x: Any) -> Any:
        return a, b, x + 1

    both = function()
    compiled = partax.filter_jit(body).lower(both, both, X).compile()
    assert compiled(both, both, X)[:2] == (both, both)
    made_anew = function()
    got = compiled(made_anew, made_anew, X)
    assert got[0] is made_anew and got[1] is made_anew
    with pytest.raises(TypeError, match="two equal objects where those had one"):
        compiled(both, made_anew, X)
