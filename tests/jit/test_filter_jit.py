"""filter_jit works on every kind of callable and value, and traces only when it must: as the model in reference.py."""

import functools
import traceback
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import TraceCounter
from partax import filter_jit
from trees import SAMPLES, Layer, add_one, array, assert_close, assert_same, double, make_model, samples


class Plain:
    """Not a pytree: an instance is one static leaf."""

    def method(self, x: jax.Array) -> jax.Array:
        return x * 2

    @classmethod
    def of_class(cls, x: jax.Array) -> jax.Array:
        return x * 2


CALLABLES: dict[str, Any] = {
    "function": double,
    "functools_partial": functools.partial(jnp.multiply, array(3)),
    "jax_partial": jax.tree_util.Partial(jnp.multiply, array(3)),
    "module": make_model(),
    "bound_method": Layer(array(3, 3)).total,
    "plain_bound_method": Plain().method,
    "class_method": Plain.of_class,
    "custom_jvp": jax.nn.relu,
    "jitted": jax.jit(double),
    "eqx_vmapped": eqx.filter_vmap(double),
    "grad": jax.grad(lambda x: jnp.sum(x * x)),
    "array of NumPy": lambda x: np.arange(3, dtype=np.float32),
}


@pytest.mark.parametrize("fun", CALLABLES.values(), ids=CALLABLES.keys())
def test_kinds_of_callables(fun: Any) -> None:
    x = array(3, start=1)
    assert_close(jax.tree.leaves(filter_jit(fun)(x))[0], jax.tree.leaves(fun(x))[0])


def test_arrays_of_self_are_traced_and_its_statics_are_the_key(traces: TraceCounter) -> None:
    class M(eqx.Module):
        increment: Any

        @filter_jit
        def inner(self, x: jax.Array) -> jax.Array:
            return traces.seen(x) + self.increment

    def run(m: M) -> float:
        return float(m.inner(jnp.array(1.0)))

    assert [run(M(1)), run(M(1)), traces.count] == [2, 2, 1]
    assert [run(M(2)), run(M(2)), traces.count] == [3, 3, 2]
    assert [run(M(jnp.array(1))), run(M(jnp.array(2))), traces.count] == [2, 3, 3]


def test_every_tree_goes_through_with_one_trace(traces: TraceCounter) -> None:
    f = filter_jit(lambda tree: add_one(traces.seen(tree)))
    for _ in range(3):
        assert_same(f(samples()), add_one(samples()))
    assert traces.count == 1
    itself = filter_jit(lambda tree: traces.seen(tree))
    for count, make in enumerate(SAMPLES.values(), 2):
        for _ in range(2):
            assert_same(itself(make()), jax.tree.map(lambda leaf: leaf, make()))
        assert traces.count == count


def test_refs_are_traced(traces: TraceCounter) -> None:
    @filter_jit
    def accumulate(ref: Any, x: jax.Array) -> jax.Array:
        traces.tick()
        ref[...] += x
        return x * 2

    for _ in range(2):
        ref = jax.new_ref(jnp.zeros(2))
        assert_same((accumulate(ref, array(2)), ref[...]), (array(2) * 2, array(2)))
    assert traces.count == 1


def test_nested_wrappers_trace_once(traces: TraceCounter) -> None:
    f = filter_jit(filter_jit(lambda x, n: (traces.seen(x) * n, n)))
    for i in range(3):
        assert_same(f(array(2, start=i), 2), (array(2, start=i) * 2, 2))
    assert traces.count == 1
    assert_same(filter_jit(lambda x: f(x, 3)[0] + 1)(array(2)), array(2) * 3 + 1)


def test_goes_through_jax_transformations(traces: TraceCounter) -> None:
    f = filter_jit(lambda x, n=2: jnp.sum(traces.seen(x) ** n))
    x, xs = array(3, start=1), array(2, 3)
    assert_same(jax.grad(f)(x), 2 * x)
    assert_same(jax.grad(lambda x: f(x, n=3))(x), 3 * x**2)
    assert_same(jax.vmap(f)(xs), jnp.sum(xs**2, axis=1))
    assert_same(jax.jvp(f, (x,), (jnp.ones(3),))[1], jnp.sum(2 * x))
    assert_same(jax.hessian(f)(x), 2 * jnp.eye(3))
    assert_same(jax.jit(jax.vmap(jax.grad(f)))(xs), 2 * xs)
    assert jax.eval_shape(f, x).shape == ()
    before = traces.count
    jax.grad(f)(x)
    assert traces.count == before


def test_disable_jit_runs_the_function_itself(traces: TraceCounter) -> None:
    f = filter_jit(lambda x, n: (x * n, n) if float(traces.seen(x)) > 0 else "negative")
    with jax.disable_jit():
        assert_same(f(jnp.float32(2), 3), (jnp.float32(6), 3))
        assert f(jnp.float32(-2), n=3) == "negative"
    assert traces.count == 2


def test_exceptions_pass_through_and_leave_nothing_behind() -> None:
    error = ValueError("boom")
    fail = [True]

    @filter_jit
    def f(x: jax.Array, n: int) -> jax.Array:
        if fail[0]:
            raise error
        return x * n

    for done, size in enumerate((2, 5, 7)):
        fail[0] = True
        with pytest.raises(ValueError, match="boom") as caught:
            f(array(size), 3)
        assert caught.value is error and error.__cause__ is None
        last = traceback.extract_tb(caught.tb)[-1]
        assert (last.name, last.line, last.filename) == ("f", "raise error", __file__)
        assert f.cache_info()[:2] == (min(done, 1), done)
        fail[0] = False
        assert_same(f(array(size), 3), array(size) * 3)
        assert f.cache_info()[:2] == (1, done + 1)


@pytest.mark.skipif(not hasattr(jax, "Inline"), reason="this jax has no `jax.Inline`")
def test_every_way_to_inline_that_jax_has() -> None:
    def program(jit: Any, way: Any) -> str:
        inner = jit(lambda x: x + 1, inline=way)
        return str(jax.make_jaxpr(lambda x: inner(x))(jnp.ones(2)))

    for way in getattr(jax, "Inline", ()):
        assert program(filter_jit, way).count("jaxpr=") == program(jax.jit, way).count("jaxpr=")
