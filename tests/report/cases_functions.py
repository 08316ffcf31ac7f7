"""Guards the promise that a wrapper made anew finds the traces of an equal function, and no others."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from retrace_case import HIT, OTHERS_TRACE, TRACES, Case, Library, X, changed, played

from counting import seen

ANEW = "<lambda>: trace 1, the first of function 2 of this code: <lambda> at FILE:LINE is new (same code, "


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


def item(x: Any, by: Any) -> Any:
    return seen(x) * by["n"]


def defined(library: Library, n: Any) -> Any:
    @library.jit
    def inner(x: Any) -> Any:
        return seen(x) * n

    return inner


def attributed(flag: Any) -> Any:
    def f(x: Any) -> Any:
        return seen(x) * f.flag

    f.flag = flag
    return f


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
        lambda library, n: library.jit(lambda x: seen(x) * n), f"{ANEW}closure cell 'n' 2 -> 3)", (2, 3)),
    anew("a lambda made and wrapped anew, with another array in its closure",
        lambda library, held: library.jit(lambda x: seen(x) + held),
        f"{ANEW}closure cell 'held' holds another array, float32[2,3])", (X, X + 1)),
    anew("a partial with another argument, made and wrapped anew",
        lambda library, n: library.jit(functools.partial(power, n=n)),
        "power: trace 1, the first of function 2 of this code: partial of power at FILE:LINE is new (same code, "
        "argument 'n' 2 -> 3)", (2, 3)),
]  # fmt: skip


@CASES.append
@played("the cell of a notebook is run again", **OTHERS_TRACE)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    for _ in range(2):
        exec(compile("def step(x):\n    return seen(x) * 2\n", "<cell 1>", "exec"), globals())
        fun = globals()["step"]
        yield lambda fun=fun: library.jit(fun)(X)


CASES += [
    changed("a variable in the closure of the function is set", f"{ANEW}closure cell 'n' 2 -> 3)",
        lambda n: lambda x: seen(x) * n, lambda f, _: setattr(f.__closure__[0], "cell_contents", 3)),
    changed("a list in the closure of the function is changed", f"{ANEW}closure cell 'numbers'[0] 2 -> 3)",
        lambda numbers: lambda x: seen(x) * numbers[0], lambda _, numbers: numbers.__setitem__(0, 3), [2]),
    changed("a dict that a partial holds is changed",
        "item: trace 1, the first of function 2 of this code: partial of item at FILE:LINE is new (same code, "
        "argument 'by'['n'] 2 -> 3)", lambda by: functools.partial(item, by=by), lambda _, by: by.update(n=3),
        {"n": 2}),
    changed("a variable of a function in the closure of the function is set",
        f"{ANEW}closure cell 'inner' <lambda> at FILE:LINE is new (same code, closure cell 'n' 2 -> 3))",
        lambda n: (lambda inner: lambda x: inner(seen(x)))(lambda x: x * n),
        lambda f, _: setattr(f.__closure__[0].cell_contents.__closure__[0], "cell_contents", 3)),
    changed("a default of the function is replaced", f"{ANEW}default of 'n' 2 -> 3)",
        lambda n: lambda x, n=n: seen(x) * n, lambda f, _: setattr(f, "__defaults__", (3,))),
    changed("a keyword default of the function is replaced", f"{ANEW}default of 'n' 2 -> 3)",
        lambda n: lambda x, *, n=n: seen(x) * n, lambda f, _: setattr(f, "__kwdefaults__", {"n": 3})),
    changed("an attribute of the function is set",
        "f: trace 1, the first of function 2 of this code: f at FILE:LINE is new (same code, attribute 'flag' 2 -> 3)",
        attributed, lambda f, _: setattr(f, "flag", 3)),
    changed("the code of the function is replaced",
        "<lambda>: trace 1, the first since <lambda>.__code__ was replaced: <lambda> at FILE:LINE -> <lambda> at "
        "FILE:LINE", lambda _: lambda x: seen(x) * 2,
        lambda f, _: setattr(f, "__code__", (lambda x: seen(x) * 3).__code__)),
    anew("a method of an object, looked up and wrapped anew", lambda library, _: library.jit(HOLDER.apply),
        "apply: trace 1, the first of function 2 of this code: apply at FILE:LINE is new (reads .__self__, which "
        "cannot be proven unchanged)", equinox=HIT),
]  # fmt: skip


@CASES.append
@played("the same function with another option", "f: trace 1, the first", jax=HIT)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def f(x: Any) -> Any:
        return seen(x) * 2

    yield lambda: library.jit(f)(X)
    more = {"partax": {"donate": "all"}, "equinox": {"donate": "all"}, "jax": {"donate_argnums": 0}}
    yield lambda: library.jit(f, **more)(X + 0)
