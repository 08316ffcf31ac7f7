"""Guards the promise that a change inside of a partial, a method, a jitted or recursive function is what is told."""

from __future__ import annotations

import functools
from typing import Any

import jax
from cases_callables import SAME_CODE, calling
from retrace_case import Case, change

from callables_made_anew import Scale, mutual, recursive, scaled
from counting import seen


def keeping(held: Any) -> Any:
    return lambda: held


ANOTHER_OBJECT = "FILE:LINE is new (of the same function, but another object, compared by identity)"

CASES: list[Case] = [
    calling("`jax.jit` of a lambda with another value", lambda n: jax.jit(scaled(n)), 2, 3,
        f"a: PjitFunction of <lambda> at FILE:LINE is new (function {SAME_CODE}closure cell 'n' 2 -> 3))"),
    calling("`jax.jit` with another option", lambda keep: jax.jit(scaled(2), keep_unused=keep), False, True,
        "a: PjitFunction of <lambda> at FILE:LINE is new (option 'keep_unused' False -> True)"),
    calling("a partial of `jax.jit` of a lambda with another value", lambda n: functools.partial(jax.jit(scaled(n))), 2,
        3,
        "a: partial of PjitFunction of <lambda> at FILE:LINE is new (function PjitFunction of <lambda> at FILE:LINE is "
        f"new (function {SAME_CODE}closure cell 'n' 2 -> 3)))"),
    calling("a method of another frozen dataclass", lambda n: Scale(n).apply, 2, 3,
        "a: method Scale.apply is new (self.n 2 -> 3)"),
    calling("a recursive function with another value", recursive, 2, 3,
        "a: power at FILE:LINE is new (same code, closure cell 'n' 2 -> 3)"),
    calling("two functions that call each other, with another value", mutual, 2, 3,
        "a: even at FILE:LINE is new (same code, closure cell 'n' 2 -> 3)"),
    change("argument: another `jax.custom_jvp` of one function", lambda x, a: seen(x) + callable(a),
        jax.custom_jvp(scaled(2)), jax.custom_jvp(scaled(2)), f"a: custom_jvp of <lambda> at {ANOTHER_OBJECT}",
        static=True),
    change("argument: one of two lambdas in a list", lambda x, a: a[1](seen(x)), 3, 4,
        f"a[1]: {SAME_CODE}closure cell 'n' 3 -> 4)", make=lambda n: [scaled(2), scaled(n)], jax=None),
    change("argument: a number in a dict in a closure", lambda x, a: seen(x) * a()["rates"][0], 1, 2,
        f"a: {SAME_CODE}closure cell 'held'['rates'][0] 1 -> 2)", make=lambda n: keeping({"rates": [n]}), static=True),
]  # fmt: skip
