"""Guards the promise that what a function holds is looked at for each call, traced once for each of its states, and
gone when the function is."""

from __future__ import annotations

import functools
import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from conftest import TraceCounter
from growth import dies
from partax import filter_grad, filter_jit
from trees import array, assert_same

Collect = Callable[[], None]

# --- containers

READS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    "get": (lambda: {"s": 2.0}, lambda c: c.get("s", 1.0), lambda c, n: c.update(s=n)),
    "get of what is absent": (dict, lambda c: c.get("s", 2.0), lambda c, n: c.update(s=n)),
    "setdefault inside": (lambda: {"a": {"s": 2.0}}, lambda c: c["a"].setdefault("s"), lambda c, n: c["a"].update(s=n)),
    "pop of a copy": (lambda: {"s": 2.0}, lambda c: dict(c).pop("s", 1.0), lambda c, n: c.update(s=n)),
    "items": (lambda: {"s": 2.0}, lambda c: dict(c.items())["s"], lambda c, n: c.update(s=n)),
    "unpacked": (lambda: {"s": 2.0}, lambda c: (lambda s: s)(**c), lambda c, n: c.update(s=n)),
    "membership": (lambda: {1}, lambda c: 3.0 if 2 in c else 2.0, lambda c, n: c.add(2) if n == 3 else c.discard(2)),
    "length": (lambda: [1, 1], lambda c: len(c) * 1.0, lambda c, n: c.__setitem__(slice(None), [1] * int(n))),
    "sum": (lambda: [1.0, 1.0], sum, lambda c, n: c.__setitem__(1, n - 1)),
    "last of many": (lambda: [2.0] * 1500, lambda c: c[-1], lambda c, n: c.__setitem__(-1, n)),
    "middle of many": (lambda: [2.0] * 5000, lambda c: c[2500], lambda c, n: c.__setitem__(2500, n)),
    "one key of many": (lambda: dict.fromkeys(range(3000), 2.0), lambda c: c[2999], lambda c, n: c.update({2999: n})),
    "many in a list": (lambda: [[2.0] * 2000], lambda c: c[0][1999], lambda c, n: c[0].__setitem__(1999, n)),
    "set of many": (
        lambda: set(range(2000)),
        lambda c: 3.0 if 7000 in c else 2.0,
        lambda c, n: c.add(7000) if n == 3 else c.discard(7000),
    ),
    "nested": (lambda: [{"a": ([2.0],)}], lambda c: c[0]["a"][0][0], lambda c, n: c[0]["a"][0].__setitem__(0, n)),
    "OrderedDict": (lambda: OrderedDict(s=2.0), lambda c: c["s"], lambda c, n: c.update(s=n)),
    "defaultdict": (lambda: defaultdict(float, s=2.0), lambda c: c["s"], lambda c, n: c.update(s=n)),
    "bytearray": (lambda: bytearray([2]), lambda c: float(c[0]), lambda c, n: c.__setitem__(0, int(n))),
}


@pytest.mark.parametrize("where", ["closure", "default", "attribute", "helper's closure"])
@pytest.mark.parametrize("name", READS.keys())
def test_a_container_that_a_function_holds_is_looked_into(name: str, where: str, traces: TraceCounter) -> None:
    make, read, change = READS[name]
    held = make()
    if where == "closure":
        fun = lambda x: (traces.tick(), x * read(held))[1]
    elif where == "default":
        fun = lambda x, *, c=held: (traces.tick(), x * read(c))[1]
    elif where == "attribute":
        fun = lambda x: (traces.tick(), x * read(fun.held))[1]
        fun.held = held  # type: ignore[attr-defined]
    else:
        inner = lambda x: x * read(held)
        fun = lambda x: (traces.tick(), inner(x))[1]
    wrapper = filter_jit(fun)
    for n, count in [(2.0, 1), (2.0, 1), (3.0, 2), (3.0, 2), (2.0, 2)]:
        if n == 3.0 or traces.count == 2:
            change(held, n)
        assert_same(wrapper(array(3)), array(3) * n)
        if name != "get of what is absent":  # which is another state once it is there
            assert traces.count == count


# --- threads, and functions that change what they hold


@pytest.fixture
def idle_thread() -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


def counting(log: list[int]) -> Any:
    stats: list[int] = []
    return lambda x: (log.append(1), stats.append(1), x + len(stats))[2]


def counting_by_a_helper(log: list[int]) -> Any:
    stats: dict[str, int] = {}

    def note(held: Any) -> None:
        held["n"] = held.get("n", 0) + 1
        log.append(1)

    return lambda x: (note(stats), x + stats["n"])[1]


def counting_in_a_cell(log: list[int]) -> Any:
    count = 0

    def fun(x: Any) -> Any:
        nonlocal count
        count += 1
        log.append(1)
        return x + count

    return fun


def counting_in_an_attribute(log: list[int]) -> Any:
    def fun(x: Any) -> Any:
        fun.count += 1  # type: ignore[attr-defined]
        log.append(1)
        return x + fun.count  # type: ignore[attr-defined]

    fun.count = 0  # type: ignore[attr-defined]
    return fun


def plain(log: list[int]) -> Any:
    by = 1.0
    return lambda x: (log.append(1), x + by)[1]


COUNTING = [counting, counting_by_a_helper, counting_in_a_cell, counting_in_an_attribute, plain]


@pytest.mark.usefixtures("idle_thread")
@pytest.mark.parametrize("make", COUNTING)
def test_the_body_runs_once_for_each_trace_beside_idle_threads(make: Any) -> None:
    mine, theirs = list[int](), list[int]()
    ours, jitted = filter_jit(make(mine)), jax.jit(make(theirs))
    for size in (2, 3, 2, 4, 3, 2):
        for _ in range(3):
            assert_same(ours(array(size)), jitted(array(size)))
            assert mine == theirs


@pytest.mark.parametrize("threads", [False, True], ids=["", "idle threads"])
@pytest.mark.parametrize("make", COUNTING)
def test_a_function_that_changes_what_it_holds_is_traced_for_itself(
    make: Any, threads: bool, request: pytest.FixtureRequest
) -> None:
    if threads:
        request.getfixturevalue("idle_thread")
    kept = []
    for _ in range(4):
        mine, theirs = list[int](), list[int]()
        ours, jitted = filter_jit(make(mine)), jax.jit(make(theirs))
        for _ in range(3):
            assert_same(ours(array(2)), jitted(array(2)))
            assert mine == theirs == [1]
        kept.append(ours)


# --- nothing dead is kept


class Witness:
    def __init__(self, weight: Any = None) -> None:
        self.weight = weight


def in_a_closure(held: Any) -> Any:
    return lambda x: x + held


def in_an_attribute(held: Any) -> Any:
    fun = lambda x: x + fun.held  # type: ignore[attr-defined]
    fun.held = held  # type: ignore[attr-defined]
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


def direct(fun: Any) -> Any:
    return filter_jit(fun)(jnp.ones(100))


def as_an_argument(fun: Any) -> Any:
    return SHARED(fun, jnp.ones(100))[0]


def of_a_gradient(fun: Any) -> Any:
    return filter_jit(filter_grad(lambda x: jnp.sum(fun(x))))(jnp.ones(100))


def of_a_partial(fun: Any) -> Any:
    return filter_jit(functools.partial(fun))(jnp.ones(100))


SHARED = filter_jit(lambda fun, x: (fun(x), fun))


@pytest.mark.parametrize("use", [direct, as_an_argument, of_a_gradient, of_a_partial])
@pytest.mark.parametrize("holder", [pytest.param(it, marks=[dies] * (it == "global")) for it in HOLDERS])
def test_what_a_dead_function_captured_is_gone(holder: str, use: Any, collect: Collect) -> None:
    held = jnp.arange(100.0)
    alive = weakref.ref(held)
    fun = HOLDERS[holder](held)
    dead = weakref.ref(fun)
    use(fun)
    del fun, held
    others = []
    for i in range(60):  # made after it, half of them kept
        other = filter_jit(eval(f"lambda x: x + {i}"))
        if i % 20 == 0:
            other(1.0)
        if i % 2:
            others.append(other)
    collect()
    assert dead() is None
    assert alive() is None
    assert SHARED.cache_info().static_keys == 0  # nobody can make it anew


@pytest.mark.parametrize("use", [direct, as_an_argument])
def test_constants_of_a_dead_function_are_gone(use: Any, collect: Collect) -> None:
    def live() -> int:
        return sum(a.size for a in jax.live_arrays() if a.size == 12345)

    def call() -> None:
        weights = [jnp.full(12345, i, jnp.float32) for i in range(3)]
        fun = lambda x: x + sum(weights)[0]
        use(fun)
        use(lambda x: x * fun(x))

    call()
    collect()
    assert live() == 0


@pytest.mark.parametrize("use", [direct, as_an_argument, of_a_partial])
def test_an_object_of_the_users_is_gone(use: Any, collect: Collect) -> None:
    witness = Witness(2.0)
    alive = weakref.ref(witness)
    use((lambda held: lambda x: x * held.weight)(witness))
    use(functools.partial(lambda w, x: x * w.weight, witness))
    del witness
    collect()
    assert alive() is None
    assert SHARED.cache_info().static_keys == 0
