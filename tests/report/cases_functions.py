"""Guards the promise that a wrapper made anew finds the traces of an equal function, and no others."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from retrace_case import HIT, OTHERS_TRACE, OTHERS_WRONG, TRACES, Case, Library, X, played

from counting import seen

ANEW = "<lambda>: trace 1, the first of function 2 of this code: <lambda> at FILE:LINE is new (same code, "
CHANGED = "f: trace 1, the first of function 2 of this code: f at FILE:LINE is new (same code, "


def double(x: Any) -> Any:
    return seen(x) * 2


def squares(x: Any) -> Any:
    return jnp.sum(seen(x) ** 2)


def cubes(x: Any) -> Any:
    return jnp.sum(seen(x) ** 3)


def times(x: Any, n: Any) -> Any:
    return seen(x) * n


def power(x: Any, n: Any) -> Any:
    return seen(x) ** n


def defined(library: Library, n: Any = 2) -> Any:
    @library.jit
    def inner(x: Any) -> Any:
        return seen(x) * n

    return inner


def anew(name: str, make: Callable[[Library], Any], **others: Any) -> Case:
    """What is made and wrapped anew for each of two calls."""

    def play(library: Library) -> Iterator[Callable[[], Any]]:
        for _ in range(2):
            yield lambda: make(library)(X)

    return played(name, **others)(play)


def item(x: Any, by: Any) -> Any:
    return seen(x) * by["n"]


def changed(
    name: str, reason: str, make: Callable[[Any], Any], held: Any, change: Callable[[Any, Any], object]
) -> Case:
    """A function of what it holds, called before and after one of both is changed."""

    def play(library: Library) -> Iterator[Callable[[], Any]]:
        own = copy.deepcopy(held)
        fun = make(own)
        f = library.jit(fun)
        yield lambda: f(X)
        change(fun, own)
        yield lambda: f(X)

    return played(name, reason, **OTHERS_WRONG)(play)


CASES: list[Case] = [
    anew("the same function wrapped anew", lambda library: library.jit(double)),
    anew("a lambda wrapped where it is called", lambda library: library.jit(lambda x: seen(x) * 2), **OTHERS_TRACE),
    anew("a local function, defined and wrapped anew", defined, **OTHERS_TRACE),
    anew("the gradient of a function, made and wrapped anew", lambda library: library.jit(library.grad(squares)),
        jax=TRACES),
    anew(
        "`jax.vmap` of a function, made and wrapped anew", lambda library: library.jit(jax.vmap(cubes)), **OTHERS_TRACE
    ),
    anew(
        "a partial, made and wrapped anew", lambda library: library.jit(functools.partial(times, n=2)), **OTHERS_TRACE
    ),
]  # fmt: skip


@CASES.append
@played(
    "a local function, defined and wrapped anew, with another number in its closure",
    "inner: trace 1, the first of function 2 of this code: inner at FILE:LINE is new (same code, closure cell 'n' 2 -> "
    "3)",
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def step(x: Any, n: Any) -> Any:
        @library.jit
        def inner(x: Any) -> Any:
            return seen(x) * n

        return inner(x)

    yield lambda: step(X, 2)
    yield lambda: step(X, 3)


@CASES.append
@played(
    "a local function, defined and wrapped anew, with another array in its closure",
    "<lambda>: trace 1, the first of function 2 of this code: <lambda> at FILE:LINE is new (same code, closure cell "
    "'held' holds another array, float32[2,3])",
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def over(held: Any) -> Any:
        return lambda x: seen(x) + held

    for fun in (over(X), over(X + 1)):
        yield lambda fun=fun: library.jit(fun)(X)


@CASES.append
@played(
    "a partial with another argument, made and wrapped anew",
    "power: trace 1, the first of function 2 of this code: partial of power at FILE:LINE is new (same code, argument "
    "'n' 2 -> 3)",
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    yield lambda: library.jit(functools.partial(power, n=2))(X)
    yield lambda: library.jit(functools.partial(power, n=3))(X)


@CASES.append
@played("the cell of a notebook is run again", **OTHERS_TRACE)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    for _ in range(2):
        exec(compile("def step(x):\n    return seen(x) * 2\n", "<cell 1>", "exec"), globals())
        fun = globals()["step"]
        yield lambda fun=fun: library.jit(fun)(X)


@CASES.append
@played("a variable in the closure of the function is set", f"{CHANGED}closure cell 'n' 2 -> 3)", **OTHERS_WRONG)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    n = 2

    def f(x: Any) -> Any:
        return seen(x) * n

    g = library.jit(f)
    yield lambda: g(X)
    n = 3
    yield lambda: g(X)


CASES += [
    changed("a list in the closure of the function is changed", f"{ANEW}closure cell 'numbers'[0] 2 -> 3)",
        lambda numbers: lambda x: seen(x) * numbers[0], [2], lambda _, numbers: numbers.__setitem__(0, 3)),
    changed("a dict that a partial holds is changed",
        "item: trace 1, the first of function 2 of this code: partial of item at FILE:LINE is new (same code, "
        "argument 'by'['n'] 2 -> 3)", lambda by: functools.partial(item, by=by), {"n": 2},
        lambda _, by: by.update(n=3)),
]  # fmt: skip


@CASES.append
@played(
    "a variable of a function in the closure of the function is set",
    f"{CHANGED}closure cell 'inner' inner at FILE:LINE is new (same code, closure cell 'n' 2 -> 3))",
    **OTHERS_WRONG,
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    n = 2

    def inner(x: Any) -> Any:
        return x * n

    def f(x: Any) -> Any:
        return inner(seen(x))

    g = library.jit(f)
    yield lambda: g(X)
    n = 3
    yield lambda: g(X)


CASES += [
    changed("a default of the function is replaced", f"{ANEW}default of 'n' 2 -> 3)",
        lambda n: lambda x, n=n: seen(x) * n, 2, lambda f, _: setattr(f, "__defaults__", (3,))),
    changed("a keyword default of the function is replaced", f"{ANEW}default of 'n' 2 -> 3)",
        lambda n: lambda x, *, n=n: seen(x) * n, 2, lambda f, _: setattr(f, "__kwdefaults__", {"n": 3})),
]  # fmt: skip


@CASES.append
@played("an attribute of the function is set", f"{CHANGED}attribute 'flag' 2 -> 3)", **OTHERS_WRONG)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def f(x: Any) -> Any:
        return seen(x) * f.flag

    f.flag = 2
    g = library.jit(f)
    yield lambda: g(X)
    f.flag = 3
    yield lambda: g(X)


CASES.append(
    changed(
        "the code of the function is replaced",
        "<lambda>: trace 1, the first since <lambda>.__code__ was replaced: <lambda> at FILE:LINE -> <lambda> at "
        "FILE:LINE",
        lambda _: lambda x: seen(x) * 2,
        None,
        lambda f, _: setattr(f, "__code__", (lambda x: seen(x) * 3).__code__),
    )
)


@CASES.append
@played(
    "a method of an object, looked up and wrapped anew",
    "apply: trace 1, the first of function 2 of this code: apply at FILE:LINE is new (reads .__self__, which cannot be "
    "proven unchanged)",
    equinox=HIT,
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    class Holder:
        def apply(self, x: Any) -> Any:
            return seen(x) * 2

    holder = Holder()
    for _ in range(2):
        wrapped = library.jit(holder.apply)
        yield lambda wrapped=wrapped: wrapped(X)


@CASES.append
@played("the same function with another option", "f: trace 1, the first", jax=HIT)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def f(x: Any) -> Any:
        return seen(x) * 2

    yield lambda: library.jit(f)(X)
    more = {"partax": {"donate": "all"}, "equinox": {"donate": "all"}, "jax": {"donate_argnums": 0}}
    yield lambda: library.jit(f, **more)(X + 0)
