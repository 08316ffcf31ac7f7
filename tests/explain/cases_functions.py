"""Guards the promise that a wrapper made anew finds the traces of an equal function, and no others."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from retrace_case import HIT, OTHERS_TRACE, TRACES, Case, Library, X, played, recreated

from counting import seen

ANEW = ": trace 1, the first of function 2 of this code: " + recreated("")


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


def defined(library: Library, n: Any) -> Any:
    @library.jit
    def inner(x: Any) -> Any:
        return seen(x) * n

    return inner


class Holder:
    def apply(self, x: Any) -> Any:
        return seen(x) * 2


HOLDER = Holder()


def anew(
    name: str, make: Callable[[Library, Any], Any], line: str | None = None, values: tuple[Any, Any] = (2, 2),
    **others: Any,
) -> Case:  # fmt: skip
    """What is made and wrapped anew for each of two calls, of a value each."""

    def play(library: Library) -> Iterator[Callable[[], Any]]:
        for value in values:
            made = make(library, value)
            yield lambda made=made: made(X)

    return played(name, line, **others)(play)


CASES: list[Case] = [
    anew("the same function wrapped anew", lambda library, _: library.jit(double)),
    anew("a lambda wrapped where it is called", lambda library, _: library.jit(lambda x: seen(x) * 2), **OTHERS_TRACE),
    anew("a local function, defined and wrapped anew", defined, **OTHERS_TRACE),
    anew("the gradient of a function, made and wrapped anew", lambda library, _: library.jit(library.grad(squares)),
        jax=TRACES),
    anew("`jax.vmap` of a function, made and wrapped anew", lambda library, _: library.jit(jax.vmap(cubes)),
        **OTHERS_TRACE),
    anew("a partial, made and wrapped anew", lambda library, n: library.jit(functools.partial(times, n=n)),
        **OTHERS_TRACE),
    anew("a lambda made and wrapped anew, with another number in its closure",
        lambda library, n: library.jit(lambda x: seen(x) * n), f"<lambda>{ANEW}'n'...2 to 3", (2, 3)),
    anew("a lambda made and wrapped anew, with another array in its closure",
        lambda library, held: library.jit(lambda x: seen(x) + held),
        f"<lambda>{ANEW}'held'...another object", (X, X + 1)),
    anew("a partial with another argument, made and wrapped anew",
        lambda library, n: library.jit(functools.partial(power, n=n)),
        f"power{ANEW}n'...2 to 3", (2, 3)),
]  # fmt: skip


@CASES.append
@played("the cell of a notebook is run again", **OTHERS_TRACE)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    for _ in range(2):
        exec(compile("def step(x):\n    return seen(x) * 2\n", "<cell 1>", "exec"), globals())
        fun = globals()["step"]
        yield lambda fun=fun: library.jit(fun)(X)


CASES += [
    anew("a method of an object, looked up and wrapped anew", lambda library, _: library.jit(HOLDER.apply),
        jax=TRACES),
]  # fmt: skip


@CASES.append
@played("the same function with another option", "f: trace 1, the first", jax=HIT)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def f(x: Any) -> Any:
        return seen(x) * 2

    yield lambda: library.jit(f)(X)
    more = {"partax": {"donate": "all"}, "equinox": {"donate": "all"}, "jax": {"donate_argnums": 0}}
    yield lambda: library.jit(f, **more)(X + 0)
