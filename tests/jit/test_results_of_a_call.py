"""Guards the promise that what comes back is the call's own, or made for it: no call gets another one's objects."""

from __future__ import annotations

import collections
import dataclasses
import functools
import time
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
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


# What a body makes of a static value, and how that is found again.
HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "object": (Box, lambda box: box.value),
    "object in an object": (lambda s: Box(Box(s)), lambda box: box.value.value),
    "method": (lambda s: Box(s).get, lambda get: get()),
    "lambda": (lambda s: lambda: s, lambda get: get()),
    "lambda in a lambda": (lambda s: (lambda inner: lambda: inner())(lambda: s), lambda get: get()),
    "default": (lambda s: lambda value=s: value, lambda get: get()),
    "partial": (lambda s: functools.partial(lambda value: value, s), lambda get: get()),
    "frozen dataclass": (Frozen, lambda frozen: frozen.value),
    "lambda in a module": (lambda s: Module(lambda: s), lambda module: module.value()),
    "deque": (lambda s: collections.deque([s]), lambda held: held[0]),
}


@pytest.mark.parametrize(("make", "find"), HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("jit", [filter_jit, partax.nnx.jit])
def test_a_result_holds_the_calls_own_object(jit: Any, make: Callable[[Any], Any], find: Callable[[Any], Any]) -> None:
    f = jit(lambda x, s: (x + 1, make(s)))
    objects = Equal(), Equal(), Equal()
    for held in (*objects, *objects):
        assert find(f(array(2), held)[1]) is held


CHANGING: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (lambda: [1], lambda it: it.append(2), list),
    "dict of lists": (lambda: {"a": [1]}, lambda it: it["a"].append(2), lambda it: list(it["a"])),
    "set in a frozen dataclass": (lambda: Frozen({1}), lambda it: it.value.add(2), lambda it: sorted(it.value)),
    "list in a field that does not compare": (
        lambda: Frozen(1, [1]),
        lambda it: it.note.append(2),
        lambda it: list(it.note),
    ),
    "list in a class with its own equality": (
        lambda: Compared([1]),
        lambda it: it.value.append(2),
        lambda it: list(it.value),
    ),
    "list in a NamedTuple": (lambda: Pair([1], 2), lambda it: it.left.append(2), lambda it: list(it.left)),
    "list in a partial": (
        lambda: functools.partial(len, [1]),
        lambda it: it.args[0].append(2),
        lambda it: list(it.args[0]),
    ),
    "list in a partial in a dict": (
        lambda: {"a": functools.partial(len, [1])},
        lambda it: it["a"].args[0].append(2),
        lambda it: list(it["a"].args[0]),
    ),
    "list in a slice": (lambda: slice([1]), lambda it: it.stop.append(2), lambda it: list(it.stop)),
    "list in a default": (
        lambda: lambda held=[1]: held,
        lambda it: it().append(2),
        lambda it: list(it()),
    ),
    "deque": (lambda: collections.deque([1]), lambda it: it.append(2), list),
    "counter": (lambda: collections.Counter("a"), lambda it: it.update("b"), dict),
    "object": (lambda: Box(1), lambda it: setattr(it, "value", 2), lambda it: it.value),
    "object in a frozen dataclass": (
        lambda: Frozen(Box(1)),
        lambda it: setattr(it.value, "value", 2),
        lambda it: it.value.value,
    ),
    "namespace": (
        lambda: types.SimpleNamespace(value=1),
        lambda it: setattr(it, "value", 2),
        lambda it: it.value,
    ),
    "user dict": (lambda: collections.UserDict(a=1), lambda it: it.update(a=2), lambda it: it["a"]),
    "default": (
        lambda: lambda box=Box(1): box,  # noqa: B008
        lambda it: setattr(it(), "value", 2),
        lambda it: it().value,
    ),
    "keyword default": (
        lambda: lambda *, box=Box(1): box,  # noqa: B008
        lambda it: setattr(it(), "value", 2),
        lambda it: it().value,
    ),
    "counter in a closure": (counter, lambda it: it(), lambda it: it()),
    "object in slots": (
        lambda: Slotted(Box(1)),
        lambda it: setattr(it.value, "value", 2),
        lambda it: it.value.value,
    ),
    "list in a closure": (
        lambda: (lambda held: lambda: held)([1]),
        lambda it: it().append(2),
        lambda it: list(it()),
    ),
}


@pytest.mark.parametrize(("make", "change", "read"), CHANGING.values(), ids=CHANGING)
def test_what_a_caller_changes_no_other_call_gets(
    make: Callable[[], Any], change: Callable[[Any], Any], read: Callable[[Any], Any]
) -> None:
    f = filter_jit(lambda x: (x + 1, Module(make())))
    first = f(array(2))[1].value
    expected = read(make())
    change(first)
    assert read(first) != expected
    for _ in range(2):
        assert read(f(array(2))[1].value) == expected


async def coroutine() -> None: ...


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
    "iterator of a range": lambda: iter(range(2)),
    "generator": lambda: (i for i in (1, 2)),
    "zip": lambda: zip([1], [2], strict=True),
    "map": lambda: map(str, [1]),
    "enumerate": lambda: enumerate([1]),
    "reversed": lambda: reversed([1]),
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


def test_a_coroutine_is_refused() -> None:
    made = []
    f = filter_jit(lambda x: (x + 1, made.append(coroutine()) or made[-1]))
    with pytest.raises(TypeError, match=r"the result\[1\]: found a `coroutine`"):
        f(array(2))
    made[0].close()


def test_one_that_came_in_comes_back() -> None:
    f, mine = filter_jit(lambda x, it: (x + 1, it)), iter([1])
    assert f(array(2), mine)[1] is mine


def test_what_does_not_change_and_holds_no_object_is_traced_once(traces: TraceCounter) -> None:
    @filter_jit
    def f(x: Any, n: int) -> Any:
        traces.tick()
        made = eqx.nn.MLP(2, 2, 2, 1, activation=lambda x: x * n, key=jax.random.key(0))
        return made, jax.nn.relu, jnp.sin, "text", 3, None, object, (1, 2), [n], lambda: n, Frozen(n)

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
