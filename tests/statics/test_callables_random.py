"""Guards the promise that taking callables that mean the same for one never changes a result:
random functions, made anew and mutated between calls, give by structure what they give by identity."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import TraceCounter
from partax import _core, filter_jit
from trees import array, assert_same

# Values that `==` takes for each other, among others.
VALUES = ["0", "False", "0.0", "-0.0", "1", "True", "1.0", "2", "'1'", "None", "(1, 0.0)", "(True, -0.0)", "[1]", "{1}"]
values = st.sampled_from(VALUES)

# Every function returns what it was made from, seen through `describe`: types, signs and all.
TEMPLATE = """
def make(cells, functions):
    first, second = cells
    inner, = functions
    def fun(x, default={default}, *, keyword={keyword}):
        local = {constant}
        {extra}
        return describe(({body}), x) + (() if inner is None else inner(x))
    return fun
"""
BODIES = [
    "first",
    "second",
    "(first, second)",
    "default",
    "keyword",
    "local",
    "[first for _ in (1, 2)]",
    "lambda: local",
]

functions = st.fixed_dictionaries(
    {
        "default": values,
        "keyword": values,
        "constant": values,
        "body": st.sampled_from(BODIES),
        "extra": st.sampled_from(["pass", "first; default", "keyword = local"]),
    }
)
recipes = st.lists(st.tuples(functions, values, values), min_size=1, max_size=3)
wrappers = st.sampled_from(["plain", "partial", "jit", "vmap"])
changes = st.sampled_from(["nothing", "default", "keyword", "attribute", "cell", "list"])


def describe(value: Any, x: jax.Array) -> tuple[Any, ...]:
    if callable(value):
        value = value()
    return (repr(value), type(value).__name__, x + (value if isinstance(value, (int, float)) else 1))


SPACE: dict[str, Any] = {"describe": describe}
exec("def anchor(): pass", SPACE)


@functools.cache
def maker(default: str, keyword: str, constant: str, body: str, extra: str) -> Any:
    source = TEMPLATE.format(default=default, keyword=keyword, constant=constant, body=body, extra=extra)
    exec(compile(source, "random.py", "exec"), SPACE)
    return SPACE["make"]


def assign(fun: Any, value: Any) -> None:
    """Another value for the closure cells that hold one."""
    for name, cell in zip(fun.__code__.co_freevars, fun.__closure__, strict=True):
        if name != "inner":
            cell.cell_contents = value


def build(recipe: list[Any], wrapper: str, change: str) -> Any:
    fun = None
    for options, first, second in recipe:
        fun = maker(**options)((eval(first), eval(second)), (fun,))
    if change == "default":
        fun.__defaults__ = (7,)
    elif change == "keyword":
        fun.__kwdefaults__["keyword"] = 7
    elif change == "attribute":
        fun.attribute = 7
    elif change == "cell":
        assign(fun, 7)
    elif change == "list":
        for cell in fun.__closure__:
            if isinstance(cell.cell_contents, list):
                cell.cell_contents.append(7)
    match wrapper:
        case "partial":
            return functools.partial(fun, keyword=3)
        case "jit":
            return _arrays_only(jax.jit, fun)
        case "vmap":
            return _arrays_only(jax.vmap, fun)
        case _:
            return fun


def _arrays_only(transform: Any, fun: Any) -> Any:
    inner = transform(lambda x: fun(x)[2])
    return lambda x: (inner(x),)


calls = st.lists(st.tuples(st.integers(0, 2), wrappers, changes), min_size=2, max_size=6)


@settings(deadline=None, max_examples=30)
@given(pool=st.lists(recipes, min_size=1, max_size=3), plan=calls)
def test_by_structure_gives_what_identity_gives(pool: list[Any], plan: list[Any]) -> None:
    traces = TraceCounter()

    def call(fun: Any, x: jax.Array) -> Any:
        traces.tick()
        return fun(x)

    by_structure, by_identity = filter_jit(call), filter_jit(call, callables="identity")
    x = array(2, start=1.0)
    for which, wrapper, change in plan:
        recipe = pool[which % len(pool)]
        expected = by_identity(build(recipe, wrapper, change), x)
        assert_same(by_structure(build(recipe, wrapper, change), x), expected)
        before = traces.count
        again = build(recipe, wrapper, change)
        assert_same(by_structure(again, x), expected)
        assert traces.count == before, "made anew, it traced again"
        assert_same(filter_jit(again)(x), expected)


@settings(deadline=None, max_examples=50)
@given(pool=st.lists(st.tuples(recipes, wrappers, changes), min_size=2, max_size=5))
def test_equal_callables_have_equal_hashes(pool: list[Any]) -> None:
    callables = [build(*parts) for parts in pool for _ in range(2)]
    for one in callables:
        for other in callables:
            if _core.static_equal(one, other):
                assert _core.static_hash(one) == _core.static_hash(other)
                assert _core.static_equal(other, one)


@settings(deadline=None, max_examples=20)
@given(recipe=recipes, steps=st.lists(changes, min_size=1, max_size=6))
def test_one_function_that_is_mutated_between_calls(recipe: list[Any], steps: list[str]) -> None:
    fun = build(recipe, "plain", "nothing")
    step = filter_jit(lambda fun, x: fun(x))
    wrapper = filter_jit(lambda x, **keywords: fun(x, **keywords))
    x = array(2, start=1.0)
    for n, change in enumerate(steps):
        if change == "default":
            fun.__defaults__ = (n,)
        elif change == "keyword":
            fun.__kwdefaults__["keyword"] = n
        elif change == "attribute":
            fun.attribute = n
        elif change == "cell":
            assign(fun, n)
        expected = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, fun(x))
        assert_same(step(fun, x), expected)
    assert_same(wrapper(x), fun(x))
