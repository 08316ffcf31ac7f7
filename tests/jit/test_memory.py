"""Guards that many calls neither grow memory nor leave anything alive, and that a wrapper built anew finds the earlier
traces. bench/soak.py makes ten million."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from conftest import TraceCounter
from growth import CALLS, Witness, check_steady, dies
from partax import filter_jit
from trees import SAMPLES, Layer, array, assert_same, make_model

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose

Collect = Callable[[], None]

# --- growth


def test_many_calls_with_every_family(traces: TraceCounter) -> None:
    @filter_jit
    def f(tree: Any) -> Any:
        traces.tick()
        return tree

    makers = list(SAMPLES.values())
    for make in makers:
        f(make())
    before = traces.count
    check_steady(lambda i: f(makers[i % len(makers)]()), calls=CALLS // 10)
    assert traces.count == before <= len(makers)


def test_many_wrappers_around_one_function() -> None:
    def f(x: jax.Array, n: int) -> jax.Array:
        return x

    x = array(3)
    check_steady(lambda i: filter_jit(f)(x, i % 2), calls=CALLS // 10)
    model = make_model()
    check_steady(lambda i: filter_jit(model)(x), calls=CALLS // 10)
    check_steady(lambda i: filter_jit(model.layers[0].total)(x), calls=CALLS // 20)


def test_many_errors() -> None:
    f = filter_jit(lambda x, n: (x, n))
    bad = Layer(array(2, 2))
    object.__setattr__(bad, "scale", np.arange(2.0))
    deep: Any = []
    deep.append(deep)
    calls: list[tuple[Any, ...]] = [(1,), (1, 2, 3), (bad, 1), ({1: 1, "a": 2}, 1), (deep, 1)]

    def run(i: int) -> None:
        with pytest.raises((TypeError, ValueError, RecursionError)):
            f(*calls[i % len(calls)])

    check_steady(run, calls=CALLS // 20, warm=50)
    assert f.cache_info().static_keys == 0


@dies  # each exception has functions of jax's
def test_many_failing_traces() -> None:
    @filter_jit
    def f(x: jax.Array, n: Any) -> jax.Array:
        raise KeyError(n)

    def run(i: int) -> None:
        with pytest.raises(KeyError):
            f(array(2), (i, Witness()))

    check_steady(run, calls=200, warm=50)
    assert f.cache_info().static_keys == 0


# --- nothing stays alive


def test_inputs_and_outputs_die_at_once_on_a_hit() -> None:
    f = filter_jit(lambda tree: (tree, tree["x"] + 1))
    gc.disable()
    try:
        for _ in range(3):
            tree = {"x": array(3), "layer": Layer(array(2, 2))}
            out = f(tree)
            alive = [weakref.ref(o) for o in (tree["x"], tree["layer"], out[1], out[0]["layer"])]
            del tree, out
    finally:
        gc.enable()
    assert [ref() for ref in alive] == [None] * 4  # without the collector: no cycles


def test_tracers_die_with_their_trace(collect: Collect) -> None:
    tracers: list[weakref.ref[Any]] = []

    @filter_jit
    def f(x: jax.Array) -> Any:
        tracers.append(weakref.ref(x))
        return x, x + 1, x.shape

    jax.jit(lambda x: f(x)[1])(array(2))
    jax.grad(lambda x: f(x)[1].sum())(array(2))
    f(array(2))
    collect()
    assert tracers and [ref() for ref in tracers] == [None] * len(tracers)


# --- sharing


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


def test_a_class_that_takes_the_place_of_a_dead_one_does_not_inherit_its_traces(collect: Collect) -> None:
    f = filter_jit(lambda holder, x: x * holder.n)
    for n in range(5):
        holder = type("Holder", (), {"n": n})()
        assert_same(f(holder, array(2)), array(2) * n)
        del holder
        collect()
