"""Guards the promise that the estimate of live bytes is what a slow model says, and near what XLA measures."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from examining import examined, floats, marked
from healthy_corpus import CORPUS, Healthy

from partax._doctor.equations import bytes_of
from partax._doctor.lines import NOWHERE
from partax._doctor.liveness import live_bytes


def chain(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = jax.lax.tanh(x @ w + 1.0)
    return x.sum(), x


def test_a_call_counts_as_what_it_calls() -> None:
    inside = examined(jax.jit(lambda x, w: jax.jit(chain)(x, w)), floats(8, 8), floats(8, 8))
    plain = examined(jax.jit(chain), floats(8, 8), floats(8, 8))
    assert live_bytes(inside).bytes == live_bytes(plain).bytes
    assert len(live_bytes(plain).bytes) == len(plain.jaxpr.jaxpr.eqns)


def test_a_loop_needs_what_its_body_needs() -> None:
    def cell(h: Any, x: Any) -> Any:
        return (h @ h) @ h, None  # two products of 64 x 64: the inner one, and the new carry

    it = examined(jax.jit(lambda h, xs: jax.lax.scan(cell, h, xs)[0]), floats(64, 64), floats(100))
    one = 64 * 64 * 4
    assert live_bytes(it).peak == one + 100 * 4 + one + 2 * one  # arguments, result, and those


def test_of_branches_the_greatest_counts() -> None:
    def choose(p: Any, x: Any) -> Any:
        return jax.lax.cond(p, lambda x: (jax.lax.sort(x) @ jax.lax.cumsum(x)).sum(), lambda x: x.sum(), x)

    it = examined(jax.jit(choose), jax.ShapeDtypeStruct((), "bool"), floats(64, 64))
    one = 64 * 64 * 4
    made = sum(bytes_of(v.aval) for eqn in it.jaxpr.jaxpr.eqns for v in eqn.outvars)
    assert live_bytes(it).peak == 1 + one + made + 3 * one  # the sorted, the summed and their product at once


def test_the_largest_at_the_peak_have_names_and_lines() -> None:
    def f(x: Any, w: Any) -> Any:
        wide = x @ w  # wide
        return jnp.sort(wide)[0] @ w.T

    it = examined(jax.jit(f, donate_argnums=0), floats(100, 10), floats(10, 200))
    largest = live_bytes(it).largest
    names = {buffer.name: buffer for buffer in largest}
    wide = names["dot_general"]
    assert wide.type == "float32[100,200]" and wide.bytes == 100 * 200 * 4
    assert wide.line.line == marked(f, "wide") and wide.line.file == __file__
    assert names["w"].bytes == 10 * 200 * 4 and names["w"].line == NOWHERE
    assert [buffer.bytes for buffer in largest] == sorted((buffer.bytes for buffer in largest), reverse=True)
    assert all(buffer.begin <= live_bytes(it).peak_step <= buffer.end for buffer in largest)


def mlp(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jax.nn.relu(x @ w)
    return (x**2).mean()


def recurrent(w: Any, xs: Any) -> Any:
    h, sums = jax.lax.scan(lambda h, x: 2 * (jnp.tanh(h @ w + x),), jnp.zeros((64, 128)), xs)
    return (h**2).sum() + sums.mean()


def adam_step(weights: Any, state: Any, x: Any) -> Any:
    loss, slope = jax.value_and_grad(mlp)(weights, x)
    updates, state = optax.adam(1e-3).update(slope, state)
    return optax.apply_updates(weights, updates), state, loss


def attention(x: Any, w: Any) -> Any:
    q, k, v = x @ w, x @ w.T, x * 2
    return jax.nn.softmax(q @ k.T) @ v


WEIGHTS = [floats(256, 256)] * 8
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "pairwise": (jax.jit(lambda x: ((x[:, None] - x[None]) ** 2).sum(-1)), (floats(500, 30),)),
    "one_hot": (jax.jit(lambda i, t: jax.nn.one_hot(i, 5000) @ t),
        (jax.ShapeDtypeStruct((1000,), "int32"), floats(5000, 8))),
    "mlp": (jax.jit(jax.grad(mlp)), (WEIGHTS, floats(2048, 256))),
    "recurrent": (jax.jit(jax.grad(recurrent)), (floats(128, 128), floats(100, 64, 128))),
    "adam": (jax.jit(adam_step, donate_argnums=(0, 1)),
        (WEIGHTS, jax.eval_shape(optax.adam(1e-3).init, WEIGHTS), floats(2048, 256))),
    "attention": (jax.jit(attention), (floats(2000, 64), floats(64, 64))),
    "cache": (jax.jit(lambda cache, x: jax.lax.dynamic_update_slice(cache, x, (5, 0)), donate_argnums=0),
        (floats(100000, 64), floats(1, 64))),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_peak_is_near_xla_s(name: str) -> None:
    function, args = PROGRAMS[name]
    it = examined(function, *args)
    xla = it.traced.lower().compile().memory_analysis()
    measured = xla.argument_size_in_bytes + xla.output_size_in_bytes + xla.temp_size_in_bytes - xla.alias_size_in_bytes
    assert measured / 1.5 < live_bytes(it).peak < 1.5 * measured


@pytest.mark.parametrize("program", CORPUS[:4], ids=lambda it: it.name)
def test_a_training_step_needs_its_arguments_and_results(program: Healthy) -> None:
    function, args = program.make()
    it = examined(function, *args)
    around = sum(leaf.bytes for leaf in (*it.arguments, *it.results))
    assert around <= live_bytes(it).peak < 10 * around


def test_a_program_without_equations() -> None:
    found = live_bytes(examined(jax.jit(lambda x: (x, 1.0)), floats(10)))
    assert found.bytes == () and found.peak == 40 and found.peak_step == 0
    assert [buffer.name for buffer in found.largest] == ["x"]


def test_deep_nesting_is_no_recursion() -> None:
    function: Any = lambda x: x @ x
    for _ in range(60):
        function = lambda x, function=function: jax.lax.fori_loop(0, 2, lambda _, y: function(y), x)
    it = examined(jax.jit(function), floats(4, 4))
    assert live_bytes(it).peak >= 3 * 64
