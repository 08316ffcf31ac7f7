"""Guards the promise that what comes back is the call's own, or made for it, also where equal objects are in several
places of the call: no call gets another one's objects."""

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
    __eq__ = lambda self, other: type(other) is Compared  # type: ignore[assignment]
    __hash__ = lambda self: 1  # type: ignore[assignment]


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
    "user dict": (lambda: collections.UserDict(a=1), lambda it: it.update(a=2), dict),
    "object": (lambda: Box(1), lambda it: setattr(it, "value", 2), lambda it: it.value),
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


@pytest.mark.parametrize("donate", ["none", "all"])
def test_first_calls_in_threads_get_an_object_each(donate: str) -> None:
    """Or an error, where they donate."""

    @filter_jit(donate=donate)
    def f(x: Any) -> Any:
        time.sleep(0.05)  # so that all threads wait for one trace
        return x + 1, Box(1)

    results = at_once(lambda _: f(array(2)))
    errors = [result for result in results if isinstance(result, Exception)]
    assert all("call the function once before the threads do" in str(error) for error in errors)
    assert len({id(result[1]) for result in results if result not in errors}) == 4 - len(errors) > 0
    assert not errors or donate == "all"


USED_UP: dict[str, Callable[[], Any]] = {
    "iterator of a list": lambda: iter([1]),
    "generator": lambda: (i for i in (1, 2)),
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
    f = filter_jit(lambda x, given, other: (traces.seen(x), Module(lambda: 3), Module(lambda: other), given))
    one, two, three, four = (Equal() for _ in range(4))
    for given in (one, two, one, two):
        assert f(array(2), given, three)[3] is given
    assert traces.count == 1
    assert f(array(2), one, four)[2].value() is four
    told = "other: another object than that which the result of an earlier trace holds"
    assert traces.count == 2 and f.report().traces[1].reason == told


MARKED: dict[str, Callable[[], Any]] = {
    "alone": lambda: object(),
    "several, in a tree": lambda: [object(), {"a": object()}],
    "of a state": lambda: eqx.nn.StateIndex(jnp.ones(2)),
    "in a default": lambda: lambda mark=object(): mark,  # noqa: B008
}


def marks(made: Any) -> list[Any]:
    if isinstance(made, eqx.nn.StateIndex | types.FunctionType):
        return [getattr(made, "marker", None) or made.__defaults__[0]]
    return [it for it in jax.tree.leaves(made) if type(it) is object]


@pytest.mark.parametrize("make", MARKED.values(), ids=MARKED)
def test_a_mark_of_its_own_belongs_to_its_function(make: Callable[[], Any]) -> None:
    """Two functions made anew have two, as by `jax.jit` of each; calls of one may share it, as in Equinox."""
    made = [filter_jit(lambda x: (x, make()))(jnp.ones(2))[1] for _ in range(3)]
    found = [mark for it in made for mark in marks(it)]
    assert found and len({id(mark) for mark in found}) == len(found)


X = jnp.arange(3.0)


class OnlyStatic(eqx.Module):
    function: Callable[..., Any] = eqx.field(static=True)


def function() -> Callable[..., Any]:
    return lambda x: x + 1


# What holds an object in an argument, and what of that is the object.
PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": HOLDING["itself"],
    "tuple": (lambda it: (it, X), lambda held: held[0]),
    "dict": HOLDING["dict"],
    "partial": HOLDING["partial"],
    "dataclass": (lambda it: Frozen((1, it)), lambda held: held.value[1]),
    "module": (lambda it: Module((it, X)), lambda held: held.value[0]),
    "static field": (lambda it: OnlyStatic(it), lambda held: held.function),
}
PATTERNS = list(itertools.product(range(2), repeat=3))


@pytest.mark.parametrize("make", [function, Equal], ids=["function", "value"])
@pytest.mark.parametrize("holder", PLACES)
def test_every_place_gives_its_own_object(holder: str, make: Callable[[], Any], traces: TraceCounter) -> None:
    hold, held = PLACES[holder]

    f = filter_jit(lambda a, b, c, x: {"rolled": (b, c, a), "inside": (held(c), held(a)), "x": traces.seen(x)})
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
    f = filter_jit(lambda a, b, shape, other, x: (a(b(traces.seen(x))), shape, other))
    one, shape = function(), OnlyStatic((2, 3.0, "text"))  # type: ignore[arg-type]
    f(one, one, shape, shape, X)
    f(function(), one, OnlyStatic((2, float("3"), "".join("text"))), shape, X)  # type: ignore[arg-type]
    f(one, function(), shape, shape, X + 1)
    assert traces.count == 2  # the body can ask whether the two functions are one


def test_a_function_that_is_inside_of_a_value_made_anew_too_needs_no_trace(traces: TraceCounter) -> None:
    f = filter_jit(lambda it, config, x: (it, Frozen(lambda: it), traces.seen(x) + 1))
    one, two = function(), function()
    for given, inside in ((one, one), (one, one), (two, one), (two, two)):
        got = f(given, Frozen(inside), X)
        assert got[0] is got[1].value() is given
        assert traces.count == 1 or given is two


def test_the_reason_names_both_places() -> None:
    f, both = filter_jit(lambda model, step, x: (model, step, x + 1)), function()
    f({"a": both}, both, X)
    f({"a": both}, function(), X)
    assert f.report().traces[1].reason == (
        "step: another object than model['a'], where an earlier trace had one object in both places and returned it"
    )


def test_a_compiled_call_refuses_what_its_trace_could_not_tell_apart() -> None:
    both, made_anew = function(), function()
    compiled = filter_jit(lambda a, b, x: (a, b, x + 1)).lower(both, both, X).compile()
    for it in (both, made_anew):
        assert all(got is it for got in compiled(it, it, X)[:2])
    with pytest.raises(TypeError, match="two equal objects where those had one"):
        compiled(both, made_anew, X)
