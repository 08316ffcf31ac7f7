"""A wrapper built anew finds the earlier traces, and keeps nothing alive that the user dropped."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax
from conftest import TraceCounter
from growth import Witness, dies
from partax import filter_jit
from trees import Layer, array, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose

Collect = Callable[[], None]


# --- sharing


def test_modules_and_methods_with_equal_static_part(traces: TraceCounter) -> None:
    class M(eqx.Module):
        weight: Any
        scale: Any = eqx.field(static=True, default=2)

        def __call__(self, x: jax.Array) -> jax.Array:
            traces.tick()
            return self.weight * x * self.scale

        def method(self, x: jax.Array) -> jax.Array:
            return self(x) + 1

    for i in range(3):
        w = array(2, start=i)
        assert_same(filter_jit(M(w))(array(2)), w * array(2) * 2)
    assert traces.count == 1
    for i in range(3):
        w = array(2, start=i)
        assert_same(filter_jit(M(w).method)(array(2)), w * array(2) * 2 + 1)
    assert traces.count == 2
    assert_same(filter_jit(M(array(2), 3))(array(2)), array(2) ** 2 * 3)
    assert_same(filter_jit(M(array(2), 3.0))(array(2)), array(2) ** 2 * 3)
    assert_same(filter_jit(M(4.0))(array(2)), array(2) * 8)
    assert traces.count == 5
    filter_jit(M(array(3)))(array(3))
    filter_jit(M(array(2), 3))(array(2))
    assert traces.count == 6


def _summed(fun: Any, x: jax.Array) -> jax.Array:
    return jnp.sum(fun(x))


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "partax.filter_grad": lambda f: partax.filter_grad(f),
    "partax.filter_value_and_grad": lambda f: partax.filter_value_and_grad(f),
    "eqx.filter_grad": lambda f: eqx.filter_grad(f),
    "eqx.filter_value_and_grad": lambda f: eqx.filter_value_and_grad(f),
    "filter_jit": lambda f: filter_jit(f),
    "eqx.filter_jit": lambda f: eqx.filter_jit(f),
    "jax.tree_util.Partial": lambda f: jax.tree_util.Partial(f),
    "eqx.Partial": lambda f: eqx.Partial(f),
    "grad of grad": lambda f: partax.filter_grad(eqx.Partial(_summed, partax.filter_grad(f))),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_transformed_functions(traces: TraceCounter, transform: Callable[[Any], Any]) -> None:
    def f(x: jax.Array) -> jax.Array:
        traces.tick()
        return jnp.sum(x**2)

    expected = transform(lambda x: jnp.sum(x**2))(array(2, start=1))
    for _ in range(3):
        assert_same(filter_jit(transform(f))(array(2, start=1)), expected)
    assert traces.count == 1


@pytest.mark.parametrize("partial", [jax.tree_util.Partial, eqx.Partial])
def test_partials_with_other_arrays(traces: TraceCounter, partial: Any) -> None:
    def f(x: jax.Array, y: jax.Array, n: int = 1) -> jax.Array:
        traces.tick()
        return x * n + y

    for i in range(3):
        y = filter_jit(partial(f, array(2, start=i)))(array(2))
        assert_same(y, array(2, start=i) + array(2))
    assert traces.count == 1
    for _ in range(2):
        assert_same(filter_jit(partial(f, array(2), n=3))(array(2)), array(2) * 4)
    assert traces.count == 2


def test_different_options_do_not_share() -> None:
    def f(x: jax.Array) -> jax.Array:
        return x + 1

    for _ in range(2):
        kept, donated, lent = array(4), array(4), array(4)
        assert_same(filter_jit(f)(kept), array(4) + 1)
        assert_same(filter_jit(f, donate="all")(donated), array(4) + 1)
        assert_same(filter_jit(f, donate=("x",))(lent), array(4) + 1)
        assert (kept.is_deleted(), donated.is_deleted(), lent.is_deleted()) == (False, True, True)
    with pytest.raises(jax.errors.JaxRuntimeError):
        filter_jit(f, compiler_options={"no such option": "1"})(array(4))
    sharding = jax.NamedSharding(jax.make_mesh((2,), ("d",), axis_types=(_AUTO,)), _P("d"))
    for _ in range(2):
        assert filter_jit(f, out_shardings=sharding)(array(4)).sharding == sharding
        assert len(filter_jit(f)(array(4)).sharding.device_set) == 1


_P = jax.sharding.PartitionSpec
_AUTO = jax.sharding.AxisType.Auto


def test_a_new_wrapper_may_have_its_own_bound(traces: TraceCounter) -> None:
    def f(n: int) -> int:
        traces.tick()
        return n

    small, large = filter_jit(f, cache_size=1), filter_jit(f, cache_size=8)
    for n in (1, 2, 3, 1, 2, 3):
        assert (small(n), large(n)) == (n, n)
    assert (small.cache_info().max_size, large.cache_info().max_size) == (1, 8)
    assert small.cache_info().static_keys <= 1 and large.cache_info().static_keys <= 8


# --- nothing is kept alive


@dies
def test_static_arguments_die_with_function_and_wrapper(collect: Collect) -> None:
    @dataclasses.dataclass(frozen=True)
    class Config:
        witness: Witness

    def f(x: jax.Array, config: Any, fun: Any) -> Any:
        return fun(x), config

    jitted = filter_jit(f)
    config = Config(Witness())

    def fun(x: jax.Array) -> jax.Array:
        return x + 1

    alive = [weakref.ref(o) for o in (Config, config.witness, fun)]
    jitted(array(2), config, fun)
    del config, fun, Config, f, jitted
    collect()
    assert [ref() for ref in alive] == [None, None, None]


def test_arguments_die_while_the_wrapper_lives(collect: Collect) -> None:
    @filter_jit
    def f(model: Layer, xs: list[jax.Array], holder: dict[str, Any]) -> Any:
        return model(xs[0]), model, xs[0]

    model, x = Layer(array(2, 2), array(2)), array(2)
    alive = [weakref.ref(o) for o in (model, model.weight, model.bias, x)]
    for _ in range(3):
        out = f(model, [x], {"a": x})
    alive += [weakref.ref(o) for o in (out[0], out[1])]
    del model, x, out
    collect()
    assert [ref() for ref in alive] == [None] * 6
    assert f.cache_info().static_keys == 1


def test_modules_die_with_their_wrapper(collect: Collect) -> None:

    def activation(x: jax.Array) -> jax.Array:
        return jnp.tanh(x)

    model = Layer(array(2, 2), array(2), activation=activation)
    alive = [weakref.ref(o) for o in (model, model.weight, activation)]
    for _ in range(2):
        filter_jit(model)(array(2))
        filter_jit(model.total)(array(2))
        filter_jit(partax.filter_grad(model.total))(array(2))
    jitted = filter_jit(model)
    jitted(array(2))
    del model, activation
    collect()
    assert None not in [ref() for ref in alive]
    del jitted
    collect()
    assert [ref() for ref in alive] == [None, None, None]


@pytest.mark.parametrize("name", [n for n in TRANSFORMS if n != "eqx.filter_jit"])  # it has its own cache
def test_transformed_functions_die(collect: Collect, name: str) -> None:

    def f(x: jax.Array) -> jax.Array:
        return jnp.sum(x**2)

    alive = weakref.ref(f)
    for _ in range(2):
        filter_jit(TRANSFORMS[name](f))(array(2))
    del f
    collect()
    assert alive() is None


@dies
def test_a_plain_class_with_decorated_methods_dies(collect: Collect) -> None:
    class Plain:
        @filter_jit
        def method(self, x: jax.Array) -> jax.Array:
            return x + 1

    plain = Plain()
    plain.method(array(2))
    alive = [weakref.ref(Plain), weakref.ref(plain)]
    del plain, Plain
    collect()
    assert [ref() for ref in alive] == [None, None]


def test_a_class_that_takes_the_place_of_a_dead_one_does_not_inherit_its_traces(
    collect: Collect,
) -> None:
    f = filter_jit(lambda holder, x: x * holder.n)
    for n in range(5):
        holder = type("Holder", (), {"n": n})()
        assert_same(f(holder, array(2)), array(2) * n)
        del holder
        collect()
