"""A static value in a result is the call's own object, also where equal ones are in several places of the call."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import pytest

import partax
from conftest import TraceCounter

X = jnp.arange(3.0)


class Module(eqx.Module):
    function: Callable[..., Any]
    weight: Any


class OnlyStatic(eqx.Module):
    function: Callable[..., Any] = eqx.field(static=True)


@dataclasses.dataclass(frozen=True)
class Name:
    """Two are equal by their text, and no pytree."""

    text: str


@dataclasses.dataclass(frozen=True)
class Holds:
    """A static value with another one inside."""

    it: Any


def function() -> Callable[..., Any]:
    def made(x: Any) -> Any:
        return x + 1

    return made


def name() -> Name:
    return Name("".join(["a", "b"]))


# What holds an object in an argument, and what of that is the object.
HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": (lambda it: it, lambda held: held),
    "tuple": (lambda it: (it, X), lambda held: held[0]),
    "dict": (lambda it: {"a": it}, lambda held: held["a"]),
    "partial": (lambda it: functools.partial(max, it), lambda held: held.args[0]),
    "dataclass": (lambda it: Holds((1, it)), lambda held: held.it[1]),
    "module": (lambda it: Module(it, X), lambda held: held.function),
    "static field": (lambda it: OnlyStatic(it), lambda held: held.function),
}
PATTERNS = list(itertools.product(range(2), repeat=3))


@pytest.mark.parametrize("make", [function, name], ids=["function", "value"])
@pytest.mark.parametrize("holder", HOLDERS)
def test_every_place_gives_its_own_object(holder: str, make: Callable[[], Any], traces: TraceCounter) -> None:
    hold, held = HOLDERS[holder]

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
        return it, Holds(lambda: it), x + 1

    one, two = function(), function()
    for _ in range(2):
        assert f(one, Holds(one), X)[0] is one
    assert traces.count == 1
    got = f(two, Holds(one), X)
    assert got[0] is two and got[1].it() is two
    got = f(two, Holds(two), X)
    assert got[0] is two and got[1].it() is two


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
