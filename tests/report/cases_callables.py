"""Guards the promise that a callable made anew does not retrace if it means the same, and does if it may not."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from retrace_case import OTHERS_TRACE, OTHERS_WRONG, Case, Library, X, change, played

from counting import seen


def scaled(n: Any) -> Any:
    return lambda x: x * n


def local(n: Any) -> Any:
    def inner(x: Any, by: Any = n, *, more: Any = n) -> Any:
        return x * by + more + n

    return inner


def over(inner: Any) -> Any:
    return lambda x: inner(x) + 1


def recursive(n: Any) -> Any:
    def power(x: Any, left: int = 2) -> Any:
        return x if left == 0 else power(x, left - 1) * n

    return power


def mutual(n: Any) -> Any:
    def even(x: Any, left: int = 2) -> Any:
        return x * n if left == 0 else odd(x, left - 1)

    def odd(x: Any, left: int = 2) -> Any:
        return even(x, left - 1)

    return even


def holding(held: Any) -> Any:
    return lambda x: x + jax.tree.leaves(held)[0]


def defaulted(n: Any) -> Any:
    def inner(x: Any, by: Any = n) -> Any:
        return x * by

    return inner


def keyword_defaulted(n: Any) -> Any:
    def inner(x: Any, *, by: Any = n) -> Any:
        return x * by

    return inner


def attributed(**attributes: Any) -> Any:
    def inner(x: Any) -> Any:
        return x * getattr(inner, "flag", 1)

    vars(inner).update(attributes)
    return inner


def times(x: Any, n: Any) -> Any:
    return x * n


@dataclasses.dataclass(frozen=True)
class Scale:
    n: Any

    def apply(self, x: Any) -> Any:
        return x * self.n


class Holder:
    """Compared by identity."""

    def __repr__(self) -> str:
        return "Holder()"

    def apply(self, x: Any) -> Any:
        return x * 2


def classes() -> Any:
    class Local:
        def __call__(self, x: Any) -> Any:
            return x

    return Local


holder = Holder()
CUSTOM = jax.custom_jvp(scaled(2))
CUSTOM.defjvps(lambda tangent, result, x: 2 * tangent)

# Callables that are made anew and are the same: what they are, and how they are made of a number.
ANEW: list[tuple[str, Callable[[Any], Any]]] = [
    ("a lambda", scaled),
    ("a local function", local),
    ("a function in a closure", lambda n: over(scaled(n))),
    ("a recursive function", recursive),
    ("two functions that call each other", mutual),
    ("a function with attributes", lambda n: attributed(flag=n)),
    ("a closure over a dict", lambda n: holding({"n": n})),
    ("a closure over a list in a tuple", lambda n: holding((n, [n]))),
    ("a partial of a named function", lambda n: functools.partial(times, n=n)),
    ("a partial of a lambda", lambda n: functools.partial(scaled(n))),
    ("a partial of a partial", lambda n: functools.partial(functools.partial(local(n), by=n), more=n)),
    ("a partial whose argument is a lambda", lambda n: functools.partial(jax.tree.map, scaled(n))),
    ("a method of an equal frozen dataclass", lambda n: Scale(n).apply),
    ("`jax.jit` of a lambda", lambda n: jax.jit(scaled(n))),
    ("`jax.vmap` of a lambda", lambda n: jax.vmap(scaled(n))),
    ("`jax.grad` of a lambda", lambda n: jax.grad(lambda x: jnp.sum(scaled(n)(x)))),
    ("`jax.checkpoint` of a lambda", lambda n: jax.checkpoint(scaled(n))),
    ("`jax.jit` of `jax.vmap` of a partial", lambda n: jax.jit(jax.vmap(functools.partial(times, n=n)))),
]
SAME_CODE = "<lambda> at FILE:LINE is new (same code, "
INNER = "inner at FILE:LINE is new (same code, "


def calling(
    name: str, make: Callable[[Any], Any], before: Any, now: Any, reason: str | None = None, **others: Any
) -> Case:
    """A static argument that is called: what `make` makes of one value, and then of another; by its own function."""
    fun = lambda x, a, case=name: a(seen(x))
    return change(f"argument: {name}", fun, before, now, reason, make=make, static=True, **others)


def itself(value: Any) -> Any:
    return value


CASES: list[Case] = [
    *(calling(f"{name} made anew", make, 2, 2, **OTHERS_TRACE) for name, make in ANEW),
    calling("a bound method, looked up anew", lambda _: holder.apply, 0, 0),
    calling("a `jax.custom_jvp` function, made once", itself, CUSTOM, CUSTOM),
    calling(
        "a method of another object",
        itself,
        Holder().apply,
        Holder().apply,
        "a: method Holder.apply is new (self is another Holder())",
    ),
    calling("a closure cell with another value", scaled, 2, 3, f"a: {SAME_CODE}closure cell 'n' 2 -> 3)"),
    calling("a closure cell, 1 -> True", scaled, 1, True, f"a: {SAME_CODE}closure cell 'n' int 1 -> bool True)"),
    calling(
        "a closure cell of a function in a closure",
        lambda n: over(scaled(n)),
        2,
        3,
        f"a: {SAME_CODE}closure cell 'inner' {SAME_CODE}closure cell 'n' 2 -> 3))",
    ),
    calling(
        "an item of a tuple in a closure cell",
        lambda n: holding((n, "a")),
        2,
        3,
        f"a: {SAME_CODE}closure cell 'held'[0] 2 -> 3)",
    ),
    calling(
        "a closure over another array",
        itself,
        holding(X),
        holding(X + 1),
        f"a: {SAME_CODE}closure cell 'held' holds another array, float32[2,3])",
    ),
    calling("a default", defaulted, 2, 3, f"a: {INNER}default of 'by' 2 -> 3)"),
    calling("a keyword default", keyword_defaulted, 2, 3, f"a: {INNER}default of 'by' 2 -> 3)"),
    calling(
        "an attribute of a function",
        lambda attributes: attributed(**attributes),
        {"flag": 2},
        {"flag": 3},
        f"a: {INNER}attribute 'flag' 2 -> 3)",
    ),
    calling(
        "a new attribute of a function",
        lambda attributes: attributed(**attributes),
        {},
        {"flag": 3},
        f"a: {INNER}attribute 'flag' is new)",
    ),
    calling(
        "an argument of a partial",
        lambda n: functools.partial(times, n=n),
        2,
        3,
        "a: partial of times at FILE:LINE is new (same code, argument 'n' 2 -> 3)",
    ),
    calling("another function", itself, scaled(2), defaulted(2), "a: <lambda> at FILE:LINE -> inner at FILE:LINE"),
    change(
        "argument: another function of a library",
        lambda x, a: seen(x) + a(0.0),
        math.sin,
        math.cos,
        "a: function math.sin -> math.cos",
        static=True,
    ),
    change(
        "argument: a class that is defined anew",
        lambda x, a: a()(seen(x)),
        classes(),
        classes(),
        "a: another class cases_callables.Local with the same text",
        static=True,
    ),
]


@CASES.append
@played(
    'argument: a lambda made anew, with `callables="identity"`',
    "call: trace 2, because fun: <lambda> at FILE:LINE is new (same code and contents, but another object, compared by "
    "identity)",
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def call(x: Any, fun: Any) -> Any:
        return fun(seen(x))

    f = library.jit(call, static=("fun",), partax={"callables": "identity"})
    first, second = scaled(2), scaled(2)
    yield lambda: f(X, first)
    yield lambda: f(X, second)


@CASES.append
@played(
    "argument: a variable in the closure of a function is set",
    "call: trace 2, because fun: fun at FILE:LINE is new (same code, closure cell 'n' 2 -> 3)",
    **OTHERS_WRONG,
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def call(x: Any, fun: Any) -> Any:
        return fun(seen(x))

    def fun(x: Any) -> Any:
        return x * n

    f, n = library.jit(call, static=("fun",)), 2
    yield lambda: f(X, fun)
    n = 3
    yield lambda: f(X, fun)


@CASES.append
@played(
    "argument: a list in the closure of a function is changed",
    f"call: trace 2, because fun: {SAME_CODE}closure cell 'held'[0] 2 -> 3)",
    **OTHERS_WRONG,
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def call(x: Any, fun: Any) -> Any:
        return fun(seen(x))

    f, numbers = library.jit(call, static=("fun",)), [2]
    fun = holding(numbers)
    yield lambda: f(X, fun)
    numbers[0] = 3
    yield lambda: f(X, fun)


@CASES.append
@played(
    "argument: the code of a function is replaced",
    "call: trace 2, because fun: <lambda> at FILE:LINE -> <lambda> at FILE:LINE",
    **OTHERS_WRONG,
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def call(x: Any, fun: Any) -> Any:
        return fun(seen(x))

    f = library.jit(call, static=("fun",))
    fun = lambda x: x * 2
    yield lambda: f(X, fun)
    fun.__code__ = (lambda x: x * 3).__code__
    yield lambda: f(X, fun)
