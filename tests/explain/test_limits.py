"""Guards the promise that traces can be limited, and that the error comes before the compile and says what is new."""

import functools
import threading
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax
from conftest import TraceCounter
from partax import RetraceError, debug, filter_jit
from trees import array, assert_same

CHANGE = r"x: float32\[3\] -> float32\[4\]"


def test_max_traces(traces: TraceCounter, compiled: list[str]) -> None:
    @filter_jit(max_traces=2)
    def step(x: Any, n: int) -> Any:
        traces.tick()
        return x * n

    step(array(3), 1)
    step(array(4), 1)
    del compiled[:]
    for _ in range(2):
        with pytest.raises(RetraceError, match=r"`step` .*max_traces=2.*because n: static int 1 -> 2"):
            step(array(4), 2)
    assert traces.count == 2 and not any("step" in name for name in compiled)
    assert_same([step(array(3), 1), step(array(4), 1)], [array(3), array(4)])
    assert step.cache_info() == (1, 2, 2, 2, 4096, 0)
    step.clear_cache()
    step(array(5), 3)
    assert traces.count == 3


def test_max_traces_ahead_of_time(traces: TraceCounter) -> None:
    @filter_jit(max_traces=1, donate="all")
    def f(x: Any) -> Any:
        traces.tick()
        return x + 1

    with pytest.raises(TypeError):
        f("a trace that raises does not count")
    f.lower(array(3)).compile()
    f(array(3))
    with pytest.raises(RetraceError, match=CHANGE):
        f.lower(jax.ShapeDtypeStruct((4,), jnp.float32))
    assert traces.count == 2


def test_decorated_methods() -> None:
    class Model(eqx.Module):
        weight: jax.Array

        @filter_jit
        @debug.assert_max_traces(max_traces=1)
        def scaled(self, x: Any, n: int = 2) -> Any:
            return self.weight * x * n

    model, x = Model(array(3)), array(3)
    assert [y.shape for y in (model.scaled(x, 2), model.scaled(x, n=2), model.scaled(x=x, n=2))] == [(3,)] * 3
    with pytest.raises(RetraceError, match=r"max_traces=1 .*n: static int 2 -> 3"):
        model.scaled(x, 3)
    assert debug.get_num_traces(Model.scaled) == debug.get_num_traces(model.scaled) == 1


@pytest.mark.parametrize("value", [-1, 1.5, "2"])
def test_a_limit_that_makes_no_sense(value: Any) -> None:
    for limit in (filter_jit, debug.assert_max_traces):
        for function in ((), (lambda x: x,)):
            with pytest.raises(ValueError, match="max_traces"):
                limit(*function, max_traces=value)


def test_no_retrace(traces: TraceCounter, compiled: list[str], devices: list[jax.Device]) -> None:
    @filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x + 1, 2

    x, y = array(3), array(4)
    f(x)
    del compiled[:]
    with debug.forbid_tracing():
        f(x)
        with pytest.raises(RetraceError, match=rf"`f` .*forbid_tracing\(\), as trace 2: {CHANGE}"):
            f(y)
        with pytest.raises(RetraceError, match="as trace 1: the first"):
            filter_jit(lambda x: x + 1)(x)
        with pytest.raises(RetraceError, match=r"compiled again .* for trace 1: x: uncommitted -> committed to"):
            f(jax.device_put(x, devices[0]))
        f(x)
    assert compiled == [] and traces.count == 1
    f(y)
    f(jax.device_put(x, devices[0]))
    assert traces.count == 2


def test_no_retrace_holds_for_nested_functions_and_in_this_thread_only() -> None:
    inner = filter_jit(lambda x: x + 1)
    outer = jax.jit(lambda x: inner(x))
    other: list[Any] = []
    with debug.forbid_tracing():
        with pytest.raises(RetraceError):
            outer(array(3))
        thread = threading.Thread(target=lambda: other.append(filter_jit(lambda x: x + 1)(array(3))))
        thread.start()
        thread.join()
    assert_same(other, [array(3) + 1])
    assert_same(outer(array(3)), array(3) + 1)


def test_a_callable_that_is_not_traced_is_not_limited() -> None:
    f = debug.assert_max_traces(lambda x: x + 1, max_traces=0)
    for n in range(3):
        assert_same(f(array(n)), array(n) + 1)
    with pytest.raises(RetraceError, match="allows none"):
        jax.jit(f)(array(3))
    with pytest.raises(RetraceError):
        jax.vmap(jax.grad(f))(array(3))


def test_only_callables() -> None:
    with pytest.raises(TypeError, match="found a `int`"):
        debug.assert_max_traces(3, max_traces=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="found a `int`"):
        debug.assert_max_traces(max_traces=1)(3)  # type: ignore[arg-type]
    for jit in (filter_jit, jax.jit, eqx.filter_jit):
        with pytest.raises(TypeError, match="not compiled yet"):
            debug.assert_max_traces(jit(lambda x: x), max_traces=1)
    assert issubclass(RetraceError, RuntimeError) and issubclass(partax.RetraceWarning, UserWarning)


DECORATED: dict[str, Any] = {
    "bare": lambda f: debug.assert_max_traces(f, max_traces=2),
    "filter_jit": lambda f: filter_jit(debug.assert_max_traces(max_traces=2)(f)),
    "jax.jit": lambda f: jax.jit(debug.assert_max_traces(max_traces=2)(f)),
    "eqx.filter_jit": lambda f: eqx.filter_jit(debug.assert_max_traces(max_traces=2)(f)),
    "partial": lambda f: functools.partial(filter_jit(debug.assert_max_traces(max_traces=2)(f))),
}


@pytest.mark.parametrize("name", DECORATED)
def test_assert_max_traces_as_a_decorator_and_its_count(name: str) -> None:
    f = DECORATED[name](lambda x, n=1: x * n)
    assert debug.get_num_traces(f) == 0
    called = jax.jit(f) if name == "bare" else f
    for expected, size in ((1, 3), (1, 3), (2, 4), (2, 3)):
        assert_same(called(array(size)), array(size))
        assert debug.get_num_traces(f) == expected
    with pytest.raises(RetraceError, match="max_traces=2"):
        called(array(5))
    assert debug.get_num_traces(f) == 2


@pytest.mark.parametrize("fun", [len, lambda x: x, filter_jit(lambda x: x), functools.partial(len), object()])
def test_a_callable_whose_traces_nobody_counts(fun: Any) -> None:
    with pytest.raises(ValueError, match="assert_max_traces"):
        debug.get_num_traces(fun)
