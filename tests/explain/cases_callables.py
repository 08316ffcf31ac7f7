"""Guards the promise that a callable made anew does not retrace if it means the same, and does if it may not."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from retrace_case import OTHERS_TRACE, Case, Library, X, change, played, recreated

from callables_made_anew import SHOWN, Scale, attributed, holding, local, over, scaled
from counting import seen


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


def calling(
    name: str, make: Callable[[Any], Any], before: Any, now: Any, reason: str | None = None, **others: Any
) -> Case:
    """A static argument that is called: what `make` makes of one value, and then of another; by its own function."""
    fun = lambda x, a, case=name: a(seen(x))
    return change(f"argument: {name}", fun, before, now, reason, make=make, static=True, **others)


def itself(value: Any) -> Any:
    return value


CASES: list[Case] = [
    *(calling(f"{name} made anew", make, 2, 2, **OTHERS_TRACE) for name, make in SHOWN.items()),
    calling("a bound method, looked up anew", lambda _: holder.apply, 0, 0),
    calling("a `jax.custom_jvp` function, made once", itself, CUSTOM, CUSTOM),
    calling("a method of another object of equal content", itself, Holder().apply, Holder().apply, **OTHERS_TRACE),
    calling("a closure cell with another value", scaled, 2, 3, recreated("a", "'n'", "2 to 3")),
    calling("a closure cell, 1 -> True", scaled, 1, True, recreated("a", "'n'", "1 to True")),
    calling("a closure cell of a function in a closure", lambda n: over(scaled(n)), 2, 3,
        recreated("a", "'n'", "2 to 3")),
    calling("a closure over another array", itself, holding(X), holding(X + 1),
        recreated("a", "'held'", "another object")),
    calling("a default", lambda n: lambda x, by=n: x * by, 2, 3, recreated("a", "default", "2 to 3")),
    calling("an attribute of a function", lambda attributes: attributed(**attributes), {"flag": 2}, {"flag": 3},
        recreated("a", "flag", "2 to 3")),
    calling("another function", itself, scaled(2), local(2), "a: <lambda> at FILE:LINE -> fun at FILE:LINE"),
    change("argument: another function of a library", lambda x, a: seen(x) + a(0.0), math.sin, math.cos,
        "a: function math.sin -> math.cos", static=True),
    change("argument: a class that is defined anew", lambda x, a: a()(seen(x)), classes(), classes(),
        "a: another class cases_callables.Local with the same text", static=True),
    calling("`jax.jit` with another option", lambda keep: jax.jit(scaled(2), keep_unused=keep), False, True,
        recreated("a", "another object")),
    calling("a partial of `jax.jit` of a lambda with another value", lambda n: functools.partial(jax.jit(scaled(n))), 2,
        3, recreated("a", "'n'", "2 to 3")),
    calling("a method of another frozen dataclass", lambda n: Scale(n).apply, 2, 3,
        recreated("a", "n'", "2 to 3")),
    change("argument: another `jax.custom_jvp` of one function", lambda x, a: seen(x) + callable(a),
        jax.custom_jvp(scaled(2)), jax.custom_jvp(scaled(2)),
        static=True, **OTHERS_TRACE),
]  # fmt: skip


@CASES.append
@played(
    "argument: a lambda made anew, with `reuse_equal_functions=False`",
    "<lambda>: trace 2, because fun: <lambda> at FILE:LINE is new (same code and contents, but another object, "
    "compared by identity)",
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    f = library.jit(lambda x, fun: fun(seen(x)), static=("fun",), partax={"reuse_equal_functions": False})
    first, second = scaled(2), scaled(2)
    yield lambda: f(X, first)
    yield lambda: f(X, second)
