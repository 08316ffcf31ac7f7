"""Guards the promise that a callable made anew does not retrace if it means the same, and does if it may not."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from retrace_case import OTHERS_TRACE, Case, Library, X, change, changed, played

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
    *(calling(f"{name} made anew", make, 2, 2, **OTHERS_TRACE) for name, make in SHOWN.items()),
    calling("a bound method, looked up anew", lambda _: holder.apply, 0, 0),
    calling("a `jax.custom_jvp` function, made once", itself, CUSTOM, CUSTOM),
    calling("a method of another object", itself, Holder().apply, Holder().apply,
        "a: method Holder.apply is new (self is another Holder())"),
    calling("a closure cell with another value", scaled, 2, 3, f"a: {SAME_CODE}closure cell 'n' 2 -> 3)"),
    calling("a closure cell, 1 -> True", scaled, 1, True, f"a: {SAME_CODE}closure cell 'n' int 1 -> bool True)"),
    calling("a closure cell of a function in a closure", lambda n: over(scaled(n)), 2, 3,
        f"a: {SAME_CODE}closure cell 'inner' {SAME_CODE}closure cell 'n' 2 -> 3))"),
    calling("a closure over another array", itself, holding(X), holding(X + 1),
        f"a: {SAME_CODE}closure cell 'held' holds another array, float32[2,3])"),
    calling("a default", lambda n: lambda x, by=n: x * by, 2, 3, f"a: {SAME_CODE}default of 'by' 2 -> 3)"),
    calling("an attribute of a function", lambda attributes: attributed(**attributes), {"flag": 2}, {"flag": 3},
        f"a: {INNER}attribute 'flag' 2 -> 3)"),
    calling("another function", itself, scaled(2), local(2), "a: <lambda> at FILE:LINE -> fun at FILE:LINE"),
    change("argument: another function of a library", lambda x, a: seen(x) + a(0.0), math.sin, math.cos,
        "a: function math.sin -> math.cos", static=True),
    change("argument: a class that is defined anew", lambda x, a: a()(seen(x)), classes(), classes(),
        "a: another class cases_callables.Local with the same text", static=True),
    calling("`jax.jit` with another option", lambda keep: jax.jit(scaled(2), keep_unused=keep), False, True,
        "a: PjitFunction of <lambda> at FILE:LINE is new (option 'keep_unused' False -> True)"),
    calling("a partial of `jax.jit` of a lambda with another value", lambda n: functools.partial(jax.jit(scaled(n))), 2,
        3,
        "a: partial of PjitFunction of <lambda> at FILE:LINE is new (function PjitFunction of <lambda> at FILE:LINE is "
        f"new (function {SAME_CODE}closure cell 'n' 2 -> 3)))"),
    calling("a method of another frozen dataclass", lambda n: Scale(n).apply, 2, 3,
        "a: method Scale.apply is new (self.n 2 -> 3)"),
    change("argument: another `jax.custom_jvp` of one function", lambda x, a: seen(x) + callable(a),
        jax.custom_jvp(scaled(2)), jax.custom_jvp(scaled(2)),
        "a: custom_jvp of <lambda> at FILE:LINE is new (of the same function, but another object, compared by "
        "identity)",
        static=True),
]  # fmt: skip


def given(x: Any, fun: Any) -> Any:
    return fun(x)


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


CASES += [
    changed("argument: a variable in the closure of a function is set", f"a: {SAME_CODE}closure cell 'n' 2 -> 3)",
        scaled, lambda fun, _: setattr(fun.__closure__[0], "cell_contents", 3), use=given),
    changed("argument: a list in the closure of a function is changed",
        f"a: {SAME_CODE}closure cell 'held'[0] 2 -> 3)", holding, lambda _, held: held.__setitem__(0, 3), [2],
        use=given),
    changed("argument: the code of a function is replaced", "a: <lambda> at FILE:LINE -> <lambda> at FILE:LINE",
        lambda _: lambda x: x * 2,
        lambda fun, _: setattr(fun, "__code__", (lambda x: x * 3).__code__), use=given),
]  # fmt: skip
