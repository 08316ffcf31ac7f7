"""Guards the promise that what a function holds is looked at for each call, traced once for each of its states, and
gone when the function is."""

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from callables_made_anew import local as scaled
from growth import dies
from partax import filter_grad, filter_jit
from trees import array, assert_same

# --- functions that change what they hold


def in_a_list(log: list[int]) -> Any:
    stats: list[int] = []
    return lambda x: (log.append(1), stats.append(1), x + len(stats))[2]


def by_a_helper(log: list[int]) -> Any:
    stats = {"n": 0}

    def note(held: Any) -> None:
        held["n"] += 1
        log.append(1)

    return lambda x: (note(stats), x + stats["n"])[1]


def in_a_cell(log: list[int]) -> Any:
    count = 0

    def fun(x: Any) -> Any:
        nonlocal count
        count += 1
        log.append(1)
        return x + count

    return fun


def in_its_attribute(log: list[int]) -> Any:
    fun: Any = lambda x: (setattr(fun, "count", fun.count + 1), log.append(1), x + fun.count)[2]
    fun.count = 0
    return fun


@pytest.fixture(params=[0, 3], ids=["", "idle threads"])
def idle_threads(request: pytest.FixtureRequest) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait, daemon=True) for _ in range(request.param)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("idle_threads")
@pytest.mark.parametrize("counting", [in_a_list, by_a_helper, in_a_cell, in_its_attribute])
def test_a_function_that_changes_what_it_holds_is_traced_for_itself_and_once_for_each_shape(counting: Any) -> None:
    kept = []
    for _ in range(4):
        mine, theirs = list[int](), list[int]()
        ours, jitted = filter_jit(counting(mine)), jax.jit(counting(theirs))
        for size in (2, 2, 2, 3, 2, 4, 3, 3):
            assert_same(ours(array(size)), jitted(array(size)))
            assert mine == theirs
        kept.append(ours)


def test_what_it_holds_counts_whichever_wrapper_saw_it_last() -> None:
    functions = [scaled(2.0), scaled(2.0), jnp.sin]

    def fun(x: Any, other: Any) -> Any:
        return held(x) + (other is held) + shift

    kept = [filter_jit(fun), filter_jit(fun), filter_jit(jax.tree_util.Partial(fun))]
    all_ways = itertools.product((0, 1, 0, 2, 1, 2, 0), (0, 1), (0, 3))
    for at, other, by in ((0, 2, 1), (0, 2, 0), (1, 1, 0), (0, 1, 1), (2, 0, 2), (0, 1, 2), (0, 0, 2), *all_ways):
        held, shift, call = functions[at], jax.device_get(jnp.array(at // 2)), [*kept, filter_jit(fun)][by]
        assert_same(call(array(2 + other), functions[other]), fun(array(2 + other), functions[other]))


# --- nothing dead is kept


class Witness:
    def __init__(self, weight: Any) -> None:
        self.weight = weight


def in_a_closure(held: Any) -> Any:
    return lambda x: x + held


def in_an_attribute(held: Any) -> Any:
    fun: Any = lambda x: x + fun.held
    fun.held = held
    return fun


def in_a_global(held: Any) -> Any:
    space = {"HELD": held, "__name__": "space"}
    exec("def fun(x): return x + HELD", space)
    return space["fun"]


def calling(helper: Any) -> Any:
    return lambda x: helper(x)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "closure": in_a_closure,
    "default": lambda held: lambda x, h=held: x + h,
    "keyword default": lambda held: lambda x, *, h=held: x + h,
    "self": lambda held: (lambda witness: lambda x: x + witness.weight)(Witness(held)),
    "container": lambda held: (lambda container: lambda x: x + container["a"][0][0])({"a": [(held,)]}),
    "attribute": in_an_attribute,
    "partial": lambda held: functools.partial(lambda h, x: x + h, held),
    "helper": lambda held: calling(in_a_closure(held)),
    "jitted helper": lambda held: calling(jax.jit(in_a_closure(held))),
    "wrapped helper": lambda held: calling(filter_jit(in_a_closure(held))),
    "global": in_a_global,
}
SHARED = filter_jit(lambda fun, x: (fun(x), fun))
USES: dict[str, Callable[[Any], Any]] = {
    "direct": lambda fun: filter_jit(fun)(jnp.ones(100)),
    "argument": lambda fun: SHARED(fun, jnp.ones(100))[0],
    "gradient": lambda fun: filter_jit(filter_grad(lambda x: jnp.sum(fun(x))))(jnp.ones(100)),
    "partial": lambda fun: filter_jit(functools.partial(fun))(jnp.ones(100)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("holder", [pytest.param(it, marks=[dies] * (it == "global")) for it in HOLDERS])
def test_what_a_dead_function_captured_is_gone(holder: str, use: Any, collect: Callable[[], None]) -> None:
    held = jnp.arange(100.0)
    alive = weakref.ref(held)
    fun = HOLDERS[holder](held)
    dead = weakref.ref(fun)
    use(fun)
    del fun, held
    others = []
    for i in range(24):  # made after it, half of them kept
        other = filter_jit(eval(f"lambda x: x + {i}"))
        if i % 12 == 0:
            other(1.0)
        if i % 2:
            others.append(other)
    collect()
    assert dead() is None
    assert alive() is None
    assert SHARED.cache_info().static_keys == 0  # nobody can make it anew
