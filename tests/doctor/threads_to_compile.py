"""Programs from public threads that are slow to compile: repeated code, constants, wide switches, slow operations."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from examining import Call, floats
from jax import lax
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


@thread(JAX + "1832", "repeat", {"repetitions": 63}, also=("slow-op",))
def gradient_of_index_updates() -> Call:
    def last(x: Any) -> Any:
        f = jnp.zeros(64).at[0].set(x[0])
        for i in range(1, 64):
            f = f.at[i].set(x[i] + f[i - 1])  # here
        return f.sum()

    return jax.jit(jax.grad(last)), (floats(64),)


@thread(JAX + "22385", "repeat", {})
def recursive_jit() -> Call:
    """Each call of a compiled function inside of another is inlined: the calls grow as the numbers do."""

    @functools.partial(jax.jit, static_argnums=1)
    def fibonacci(x: Any, t: int) -> Any:
        if t < 2:
            return jnp.sin(x) * t  # here
        return fibonacci(x, t - 1) + fibonacci(x, t - 2)  # here

    return functools.partial(fibonacci, t=12), (floats(),)


@thread(JAX + "1399", "repeat", {"repetitions": 40})
def gradient_of_a_loop_over_arguments() -> Call:
    """40 of the thread's 200 arguments, each with a sine and a cosine of 10,000 variables."""

    def ratio(arguments: Any, variables: Any) -> Any:
        above = below = jnp.zeros(())
        for i in range(40):
            angle = arguments[i] * variables  # here
            wave = jnp.sin(angle) + jnp.cos(angle)  # here
            below = below + jnp.sum(wave**2)  # here
            above = above + jnp.sum(wave) ** 2  # here
        return jnp.log(above / jnp.sqrt(below))

    return jax.jit(jax.grad(ratio)), (floats(40), floats(10_000))


@thread(JAX + "5395", "repeat", {"repetitions": 48})
def gradient_of_normalising_layers() -> Call:
    def loss(parameters: Any, x: Any) -> Any:
        shift, log_scale = parameters
        log_density = 0.0
        for _ in range(48):
            x = (x - shift) * jnp.exp(-log_scale)  # here
            log_density = log_density - log_scale.sum()  # here
        return jnp.mean(log_density - 0.5 * jnp.sum(x**2, axis=-1))

    return jax.jit(jax.grad(loss)), ((floats(16), floats(16)), floats(32, 16))


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


@thread("https://github.com/eelregit/pmwd/issues/9", "repeat", {"repetitions": 30})
def time_steps_of_bodies() -> Call:
    """Compile time grew with the number of steps, which the thread puts down to a Python loop."""

    def simulate(positions: Any, speeds: Any) -> Any:
        for _ in range(30):
            apart = positions[:, None] - positions[None]  # here
            pull = -apart / (jnp.sum(apart**2, -1, keepdims=True) + 0.1) ** 1.5  # here
            speeds = speeds + 0.01 * pull.sum(1)  # here
            positions = positions + 0.01 * speeds  # here
        return positions, speeds

    return simulate, (floats(32, 3), floats(32, 3))


@thread("https://github.com/QuantEcon/lecture-python-programming/pull/442", "repeat", {"repetitions": 20})
def simulated_prices() -> Call:
    def prices(key: Any) -> Any:
        s = jnp.full(1000, 2.0)
        h = jnp.zeros(1000)
        for _ in range(20):
            key, now = jax.random.split(key)  # here
            noise = jax.random.normal(now, (2, 1000))  # here
            s = s + 0.0001 + jnp.exp(h) * noise[0]  # here
            h = 0.1 * h + 0.001 * noise[1]  # here
        return jnp.mean(jnp.maximum(jnp.exp(s) - 2.0, 0))

    return jax.jit(prices), (jax.random.key(0),)


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


@thread(JAX.replace("issues", "pull") + "28157", "constant", {"bytes": 4 * (512 * 1024 + 1024 * 512)}, path="weights")
def captured_weights() -> Call:
    weights = {"in": jnp.zeros((512, 1024)), "out": jnp.zeros((1024, 512))}

    def predict(x: Any) -> Any:
        return jax.nn.relu(x @ weights["in"]) @ weights["out"]  # here

    return jax.jit(predict), (floats(8, 512),)


@thread(JAX + "23457", "constant", {"bytes": 100_000 * 16 * 4}, path="table")
def captured_embedding() -> Call:
    table = jnp.zeros((100_000, 16))

    def look_up(ids: Any) -> Any:
        return table[ids]  # here

    return jax.jit(look_up), (jax.ShapeDtypeStruct((2,), "int32"),)


@thread(JAX + "5071", "constant", {"bytes": 10_000 * 100 * 4}, path="matrix")
def captured_matrix() -> Call:
    matrix = np.ones((10_000, 100), np.float32)

    def total(x: Any) -> Any:
        return jnp.sum(jnp.dot(matrix, x))  # here

    return jax.jit(jax.grad(total)), (floats(100),)


@thread(JAX + "21300", "constant", {"bytes": 20_000 * 10 * 10 * 4}, path="values")
def sum_of_a_captured_array() -> Call:
    values = jnp.zeros((20_000, 10, 10))

    def sums() -> Any:
        return jax.vmap(jax.vmap(jnp.sum))(values)  # here

    return jax.jit(sums), ()


@thread(JAX + "4453", "switch", {"branches": 256, "thread": JAX + "4453"})
def wide_switch() -> Call:
    inners = [lambda x: x**2 for _ in range(256)]

    def chosen(i: Any, x: Any) -> Any:
        return lax.switch(i, inners, x)  # here

    return jax.jit(chosen), (jax.ShapeDtypeStruct((), "int32"), floats())


@thread(JAX + "39483", "slow-op", {"times": 8, "thread": JAX + "39483"}, also=("repeat",))
def scatters_before_a_sum() -> Call:
    def summed(x: Any, ix: Any) -> Any:
        for i in range(8):
            x = x.at[ix + i].add(x[0] * (1.0 + i * 1e-4))  # here
        return jnp.sum(x)

    return jax.jit(summed), (floats(64, 64), jax.ShapeDtypeStruct((), "int32"))
