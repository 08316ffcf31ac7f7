"""Programs from public threads that are slow to compile: repeated code, constants, wide switches, slow operations."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from examining import Call, floats
from jax.experimental import sparse
from thread_program import thread

JAX = "https://github.com/jax-ml/jax/issues/"


@thread(JAX + "2777", "repeat", {"repetitions": 8})
def inner_jit_in_a_loop() -> Call:
    """Eight turns, the thread's most, with which it took longest."""

    @jax.jit
    def sample_gates(key: Any, left: Any, right: Any) -> Any:
        key, now = jax.random.split(key)
        gate = jax.random.uniform(now, (8, 1))
        return key, 0.5 * (left + gate * left + (1 - gate) * right), 0.5 * (right + gate * left + (1 - gate) * right)

    def sample(key: Any) -> Any:
        left, right = jnp.array([[1.0, 0.0]] * 8), jnp.array([[0.0, 1.0]] * 8)
        for _ in range(8):
            key, left, right = sample_gates(key, left, right)  # here
        return left

    return jax.jit(sample), (jax.random.key(1),)


@thread(JAX + "1223", "repeat", {"repetitions": 192}, also=("slow-op",))
def autoregressive_sampling() -> Call:
    """One iteration for each of 8 x 8 pixels and 3 channels, with an update of a single element."""

    def sample(weights: Any, noise: Any) -> Any:
        image = jnp.zeros(4 + 8 * 8 * 3)
        for i in range(8 * 8 * 3):
            seen = jnp.tanh(image[i : i + 4] @ weights)  # here
            image = image.at[i + 4].set(seen + noise[i])  # here
        return image

    return jax.jit(sample), (floats(4), floats(192))


@thread(JAX + "22385", "repeat", {})
def recursive_jit() -> Call:
    """Each call of a compiled function inside of another is inlined: the calls grow as the numbers do."""

    @functools.partial(jax.jit, static_argnums=1)
    def fibonacci(x: Any, t: int) -> Any:
        if t < 2:
            return jnp.sin(x) * t  # here
        return fibonacci(x, t - 1) + fibonacci(x, t - 2)  # here

    return functools.partial(fibonacci, t=12), (floats(),)


@thread("https://github.com/keras-team/keras/issues/16485", "repeat", {"repetitions": 240})
def unrolled_recurrent_layer() -> Call:
    """The 240 iterations that the thread names."""

    def unrolled(cell: Any, inputs: Any) -> Any:
        state = (jnp.zeros(16), jnp.zeros(16))
        for x in range(240):
            state = cell(inputs[x], state)  # here
        return state[0]

    return eqx.filter_jit(unrolled), (_cell(), floats(240, 8))


def _cell() -> Any:
    return eqx.filter_eval_shape(eqx.nn.LSTMCell, 8, 16, key=jax.random.key(0))


@thread("https://docs.kidger.site/equinox/faq/", "repeat", {"repetitions": 64})
def deep_perceptron() -> Call:
    def apply(layers: Any, x: Any) -> Any:
        for layer in layers:
            x = jax.nn.relu(layer(x))  # here
        return x

    layers = [eqx.filter_eval_shape(eqx.nn.Linear, 16, 16, key=jax.random.key(0)) for _ in range(64)]
    return eqx.filter_jit(apply), (layers, floats(16))


@thread(JAX + "10596", "constant", {"bytes": 512 * 512 * 8}, path="kernel")
def captured_kernel_of_a_transform() -> Call:
    kernel = np.ones((512, 512), np.complex64)

    def propagate(field: Any) -> Any:
        return jnp.fft.ifft2(jnp.fft.fft2(field) * jnp.fft.fft2(kernel))  # here

    return jax.jit(propagate), (jax.ShapeDtypeStruct((512, 512), "complex64"),)


@thread(JAX + "14655", "constant", {"bytes": 200_000 * 2 * 4}, path="nonzeroes")
def captured_indices_of_a_sparse_matrix() -> Call:
    n = 200_000

    def build() -> Any:
        nonzeroes = jnp.asarray(np.stack([np.arange(n, dtype=np.int32)] * 2, 1))

        def product(other: Any) -> Any:
            matrix = sparse.BCOO((jnp.ones(n), nonzeroes), shape=(n, n), indices_sorted=True, unique_indices=True)
            return matrix @ other  # here

        return product

    operator = build()
    return jax.jit(lambda x: operator(jnp.ones(n) / x).sum()), (floats(),)


@thread(JAX + "21300", "constant", {"bytes": 20_000 * 10 * 10 * 4}, path="values")
def sum_of_a_captured_array() -> Call:
    values = jnp.zeros((20_000, 10, 10))

    def sums() -> Any:
        return jax.vmap(jax.vmap(jnp.sum))(values)  # here

    return jax.jit(sums), ()
