"""Two copies of the same nnx objects, one for `nnx.jit` and one for `partax.nnx.jit`, and what each did to its own."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

flax = pytest.importorskip("flax", minversion="0.12.8")

from flax import nnx  # noqa: E402
from flax.nnx import graphlib  # noqa: E402

import partax.nnx  # noqa: E402


def train_step(model: Any, optimizer: Any, x: jax.Array) -> jax.Array:
    """What most tests have changed in place: the parameters and the moments of an optimizer."""
    loss, gradients = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
    optimizer.update(model, gradients)
    return loss


def is_object(value: Any) -> bool:
    return isinstance(value, (nnx.Variable, jax.Ref)) or type(value) in graphlib.GRAPH_REGISTRY


def described(*roots: Any) -> Any:
    """All that can be told of graphs: classes, values to the bit, metadata, and which objects are one."""
    seen: dict[int, int] = {}
    alive: list[Any] = []

    def value(it: Any) -> Any:
        if is_object(it):
            if id(it) in seen:
                return ("seen", seen[id(it)])
            seen[id(it)] = len(seen)
            alive.append(it)
            return node(it)
        if isinstance(it, (jax.Array, np.ndarray)):
            return array(it)
        leaves, structure = jax.tree.flatten(it, is_leaf=lambda x: x is not it)
        if len(leaves) == 1 and leaves[0] is it:
            return (type(it), it)
        return (str(structure), [value(leaf) for leaf in leaves])

    def data(it: Any) -> Any:  # nnx.jit makes arrays of numbers that are data
        return array(jnp.asarray(it)) if isinstance(it, (bool, int, float, complex)) else value(it)

    def node(it: Any) -> Any:
        if isinstance(it, nnx.Variable):
            return (type(it), data(it.get_raw_value()), sorted((k, value(v)) for k, v in it.get_metadata().items()))
        if isinstance(it, jax.Ref):
            return ("ref", array(it[...]))
        state = it._pytree__state
        is_data = it._pytree__nodes
        attributes = {name: v for name, v in vars(it).items() if name not in ("_pytree__state", "_pytree__nodes")}
        described = [(name, (data if is_data.get(name) else value)(attributes[name])) for name in sorted(attributes)]
        return (type(it), (state.initializing, state.is_setup), dict(is_data), described)

    return [value(root) for root in roots]


def array(it: Any) -> Any:
    if jnp.issubdtype(it.dtype, jax.dtypes.prng_key):
        return ("key", str(it.dtype), array(jax.random.key_data(it)))
    return ("array", str(it.dtype), it.shape, np.asarray(it).tobytes())


class Both:
    """A function under nnx.jit and under partax.nnx.jit, each with its own copy of the same arguments."""

    def __init__(self, fun: Callable[..., Any], *args: Any, **options: Any):
        self.traces = [0, 0]
        self.args = [args, nnx.clone(args, graph=True)]
        self.jitted = [nnx.jit(self.counted(fun, 0), **options), partax.nnx.jit(self.counted(fun, 1), **options)]
        assert described(*self.args[0]) == described(*self.args[1])

    def counted(self, fun: Callable[..., Any], i: int) -> Callable[..., Any]:
        @functools.wraps(fun)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.traces[i] += 1
            return fun(*args, **kwargs)

        return counted

    def call(self, *more: Any, **kwargs: Any) -> Any:
        """Calls both, expects the same of both, and returns the result of ours."""
        results = [jitted(*args, *more, **kwargs) for jitted, args in zip(self.jitted, self.args, strict=True)]
        there, here = (described(*args, result) for args, result in zip(self.args, results, strict=True))
        assert there == here
        return results[1]

    @property
    def ours(self) -> Any:
        return self.args[1]


def both(fun: Callable[..., Any], *args: Any, calls: int = 3, traces: int | None = None, **options: Any) -> Both:
    """Some calls of both, in which ours traces no more often than nnx.jit; `traces` times, if given."""
    pair = Both(fun, *args, **options)
    for _ in range(calls):
        pair.call()
    assert pair.traces[1] <= pair.traces[0]
    if traces is not None:
        assert pair.traces[1] == traces
    return pair
