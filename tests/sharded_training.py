"""A small model trained by data and by tensor parallelism, for tests with several devices and processes."""

import re
from collections import Counter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import partax

STEPS = 5
RATE = 1e-2
OPTIMIZER = optax.adam(RATE)
# Over several devices a sum over the batch or a contraction is one of partial sums, which rounds otherwise. Adam
# divides each gradient by its size, so a step is off by that part of the rate by which its gradient is off of itself:
# by a part in ten thousand, where terms nearly cancel.
TOLERANCE = (STEPS + 1) * RATE * 1e-4

State = tuple[Any, Any]


def loss(model: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def step(model: Any, state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any, jax.Array]:
    value, gradient = partax.filter_value_and_grad(loss)(model, x, y)
    updates, state = OPTIMIZER.update(gradient, state)
    return partax.apply_updates(model, updates), state, value


def start() -> State:
    shapes = eqx.filter_eval_shape(lambda: eqx.nn.MLP(8, 4, 16, 3, key=jax.random.key(0)))
    random = np.random.default_rng(1)

    def values(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        return jnp.asarray(random.uniform(-0.3, 0.3, leaf.shape), leaf.dtype)

    model = jax.tree.map(values, shapes)
    return model, OPTIMIZER.init(partax.filter(model, partax.is_inexact_array))


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    return x, np.sin(x[:, :4])


def layouts(strategy: str, mesh: Mesh, tree: Any) -> tuple[Any, NamedSharding]:
    """The shardings of a model or state by prefix, and that of a batch. The mesh has axes `data` and `model`."""
    if strategy == "data":
        return NamedSharding(mesh, P()), NamedSharding(mesh, P(("data", "model")))

    def of(path: Any, leaf: Any) -> NamedSharding | None:
        if not partax.is_array(leaf):
            return None
        match = re.search(r"layers\[(\d)\]\.(\w+)", jax.tree_util.keystr(path))
        if match is None:
            return NamedSharding(mesh, P())
        # Layers are split by their outputs and by their inputs in turn: one sum for each pair, and no gather.
        by_outputs = int(match[1]) % 2 == 0
        if match[2] == "weight":
            return NamedSharding(mesh, P("model", None) if by_outputs else P(None, "model"))
        return NamedSharding(mesh, P("model") if by_outputs else P())

    return jax.tree_util.tree_map_with_path(of, tree), NamedSharding(mesh, P("data"))


def train(step: Any, state: State, batch: Any, steps: int = STEPS) -> tuple[Any, Any, float]:
    model, opt_state = state
    value: Any = None
    for _ in range(steps):
        model, opt_state, value = step(model, opt_state, *batch)
    return model, opt_state, float(value)


def arrays(tree: Any) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


def collectives(text: str) -> Counter[str]:
    """The collective operations in a compiled program's text."""
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter|collective-broadcast"
    return Counter(re.findall(rf" ({kinds})(?:-start)?\(", text))


def assert_close(tree: Any, on_one_device: Any) -> None:
    """The same parameters, as far as this process has them."""
    for array, expected in zip(arrays(tree), arrays(on_one_device), strict=True):
        for shard in array.addressable_shards:
            np.testing.assert_allclose(shard.data, np.asarray(expected)[shard.index], rtol=0, atol=TOLERANCE)
