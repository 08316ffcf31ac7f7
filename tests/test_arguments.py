"""filter_jit takes arguments as the function does: position and keyword share one trace."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from conftest import TraceCounter
from partax import filter_jit
from trees import array, assert_same


def test_position_keyword_and_default_share_one_trace(traces: TraceCounter) -> None:
    @filter_jit
    def f(x: jax.Array, n: int = 2, *, shift: int = 1) -> jax.Array:
        traces.tick()
        return x * n + shift

    x = array(2)
    for y in (f(x), f(x, 2), f(x, n=2), f(n=2, x=x), f(x=x, shift=1), f(x, 2, shift=1)):
        assert_same(y, x * 2 + 1)
    assert traces.count == 1 and f.cache_info().static_keys == 1
    assert_same(f(x, n=3), x * 3 + 1)
    assert_same(f(x, 3), x * 3 + 1)
    assert traces.count == 2


def test_arrays_by_keyword_are_traced(traces: TraceCounter) -> None:
    @filter_jit
    def f(x: jax.Array, y: jax.Array) -> jax.Array:
        traces.tick()
        return x - y

    assert_same(f(y=array(2), x=array(2, start=5)), jnp.full(2, 5.0))
    assert_same(f(array(2, start=5), y=array(2, start=1)), jnp.full(2, 4.0))
    assert_same(f(array(2), array(2)), jnp.zeros(2))
    assert traces.count == 1


def test_positional_only_and_keyword_only(traces: TraceCounter) -> None:
    @filter_jit
    def f(x: jax.Array, /, n: int = 1, *, k: Any) -> Any:
        traces.tick()
        return x * n, k

    assert_same(f(array(2), k="k"), (array(2), "k"))
    assert_same(f(array(2), n=1, k="k"), (array(2), "k"))
    assert traces.count == 1
    with pytest.raises(TypeError, match=r"'x'|positional-only"):
        f(x=array(2), k=1)
    with pytest.raises(TypeError, match="'k'"):
        f(array(2))


def test_var_positional_and_var_keyword(traces: TraceCounter) -> None:
    @filter_jit
    def f(*args: Any, **kwargs: Any) -> Any:
        traces.tick()
        return args, kwargs

    x = array(2)
    assert_same(f(), ((), {}))
    assert_same(f(x, 1), ((x, 1), {}))
    assert_same(f(x, 1, b=2, a=x), ((x, 1), {"a": x, "b": 2}))
    assert traces.count == 3
    assert_same(f(array(2, start=1), 1), ((array(2, start=1), 1), {}))
    assert_same(f(x, 1, a=x, b=2), ((x, 1), {"a": x, "b": 2}))
    assert traces.count == 3
    assert_same(f(x, 2), ((x, 2), {}))
    assert_same(f(b=x), ((), {"b": x}))
    assert traces.count == 5


def test_any_keyword_name_reaches_the_function() -> None:
    names = ["self", "fun", "f", "args", "kwargs", "donate", "instance", "static", "cls"]
    f = filter_jit(lambda **options: options)
    options = {name: i for i, name in enumerate(names)}
    assert_same(f(**options), jax.tree.map(lambda i: i, options))
    g = filter_jit(lambda self, args, kwargs: (self, args, kwargs))
    assert g(kwargs=3, args=2, self=1) == (1, 2, 3)


def test_a_name_in_var_keyword_is_not_the_positional_only_one() -> None:
    f = filter_jit(lambda x, /, **rest: (x, rest))
    assert_same(f(array(1), x=1), (array(1), {"x": 1}))


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {"n": 1}, "'x'"),
        ((1,), {}, "'n'"),
        ((1, 2, 3, 4), {}, "positional argument"),
        ((1, 2), {"x": 1}, "'x'"),
        ((1, 2), {"other": 1}, "'other'"),
    ],
)
def test_wrong_arguments_are_a_type_error_that_names_them(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    @filter_jit
    def f(x: Any, n: Any, k: Any = 0) -> Any:
        return x, n, k

    known = f.cache_info().static_keys  # `f` is made anew for each case and finds the cache of the others
    with pytest.raises(TypeError, match=message):
        f(*args, **kwargs)
    assert f.cache_info().static_keys == known
    assert f(1, n=2) == (1, 2, 0)


def test_methods_miss_arguments_by_name_too() -> None:
    class M(eqx.Module):
        weight: jax.Array

        @filter_jit
        def __call__(self, first: jax.Array, second: jax.Array) -> jax.Array:
            return self.weight + first + second

    m = M(array(2))
    with pytest.raises(TypeError, match="'second'"):
        m(array(2))
    assert_same(m(array(2), second=array(2)), array(2) * 3)


class Scale(eqx.Module):
    weight: jax.Array
    tick: Any = eqx.field(static=True)

    def __call__(self, x: jax.Array, n: int = 2) -> jax.Array:
        self.tick()
        return self.weight * x * n

    method = __call__


class Plain:
    def __init__(self, tick: Any) -> None:
        self.tick = tick

    def __call__(self, x: jax.Array, n: int = 2) -> jax.Array:
        self.tick()
        return array(2) * x * n

    method = __call__


KINDS: dict[str, Any] = {
    "module": lambda tick: Scale(array(2), tick),
    "bound method of a module": lambda tick: Scale(array(2), tick).method,
    "callable object": Plain,
    "bound method": lambda tick: Plain(tick).method,
    "partial": lambda tick: functools.partial(Plain(tick).method),
    "jax partial": lambda tick: jax.tree_util.Partial(Scale.method, Scale(array(2), tick)),
    "wrapper": lambda tick: filter_jit(Plain(tick).method),
}


# Their defaults belong to a function that partax does not look into, which fills them in itself: given or not given are
# two keys, and a default that is changed later is never stale.
DEFERRING = {"bound method of a module", "partial", "jax partial"}


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_share_the_trace_whatever_is_called(traces: TraceCounter, kind: str) -> None:
    f = filter_jit(KINDS[kind](traces.tick))
    x = array(2)
    for y in (f(x, 2), f(x), f(x, n=2), f(x=x), f(n=2, x=x)):
        assert_same(y, array(2) * x * 2)
    expected = 2 if kind in DEFERRING else 1
    assert traces.count == expected
    assert_same(f(x, n=3), array(2) * x * 3)
    assert traces.count == expected + 1


def test_mutable_defaults_are_read_at_each_call(traces: TraceCounter) -> None:
    default = [2]

    @filter_jit
    def f(x: jax.Array, n: list[int] = default) -> jax.Array:
        traces.tick()
        return x * n[0]

    assert_same(f(array(2)), array(2) * 2)
    default[0] = 3
    assert_same(f(array(2)), array(2) * 3)
    assert_same(f(array(2), [2]), array(2) * 2)
    assert traces.count == 2


def test_replaced_defaults_are_seen(traces: TraceCounter) -> None:
    def f(x: jax.Array, n: int = 2, *, k: int = 1) -> jax.Array:
        traces.tick()
        return x * n + k

    g = filter_jit(f)
    assert_same(g(array(2)), array(2) * 2 + 1)
    f.__defaults__ = (3,)
    assert_same(g(array(2)), array(2) * 3 + 1)
    f.__kwdefaults__ = {"k": 5}
    assert_same(g(array(2)), array(2) * 3 + 5)
    assert_same(g(array(2), 2, k=1), array(2) * 2 + 1)
    assert traces.count == 3


def test_array_defaults_are_traced(traces: TraceCounter) -> None:
    @filter_jit
    def f(x: jax.Array, bias: jax.Array = array(2, start=1)) -> jax.Array:  # noqa: B008
        traces.tick()
        return x + bias

    assert_same(f(array(2)), array(2) + array(2, start=1))
    assert_same(f(array(2), array(2)), array(2) * 2)
    assert traces.count == 1


def test_partials_take_the_remaining_arguments(traces: TraceCounter) -> None:
    def f(a: Any, b: Any, *, c: Any = 0) -> Any:
        traces.tick()
        return a, b, c

    g = filter_jit(jax.tree_util.Partial(f, array(1), c=3))
    assert_same(g(2), (array(1), 2, 3))
    assert_same(g(b=2), (array(1), 2, 3))
    assert traces.count == 1
    assert_same(g(2, c=4), (array(1), 2, 4))


def test_a_callable_module_has_the_signature_of_its_call(traces: TraceCounter) -> None:
    class M(eqx.Module):
        weight: jax.Array

        def __call__(self, x: jax.Array, n: int = 1, **options: Any) -> Any:
            traces.tick()
            return self.weight * x * n, options

    f = filter_jit(M(array(2)))
    assert_same(f(array(2), 1), (array(2) ** 2, {}))
    assert_same(f(x=array(2)), (array(2) ** 2, {}))
    assert traces.count == 1
    assert_same(f(x=array(2), k=3), (array(2) ** 2, {"k": 3}))
