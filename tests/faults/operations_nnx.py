"""Operations on partax.nnx.jit: calls that change objects of Flax do all of it or nothing."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from case import Case, operation

try:
    from flax import nnx

    import partax.nnx
except ImportError:  # the operations of Flax are left out where it is not here
    nnx: Any = None


def changing_case(function: Callable[[Any, Any], Any]) -> Case:
    """Of a hit whose function gives each Variable a value that follows from its argument."""
    jitted = partax.nnx.jit(function)
    pair = nnx.List([nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.Dict(a=nnx.Param(jnp.zeros(3)), b=nnx.Param(jnp.ones(2)))])
    x = jnp.ones(2)

    def variables() -> list[Any]:
        return [it for _, it in nnx.iter_graph(pair) if isinstance(it, nnx.Variable)]

    for _ in range(3):
        jitted(pair, x)
    info = jitted.cache_info()._replace(hits=0)

    def prepare() -> None:
        for variable in variables():
            variable.set_raw_value(jnp.zeros_like(variable.get_raw_value()))

    def check(value: Any) -> None:
        assert jnp.array_equal(value, jnp.full(2, 2.0))
        assert all(jnp.all(variable.get_raw_value() == 2) for variable in variables()), "not all are changed"
        assert jitted.cache_info()._replace(hits=0) == info, "traced again"

    def state() -> Any:
        return [(id(variable), id(variable.get_raw_value())) for variable in variables()], jitted.cache_info()[:2]

    return Case(lambda: jitted(pair, x), check, state=state, prepare=prepare, watched=(pair, jitted, x))


def give_values(pair: Any, x: jax.Array) -> jax.Array:
    for _, it in nnx.iter_graph(pair):
        if isinstance(it, nnx.Variable):
            it[...] = jnp.full(it.shape, x[0] + 1)
    return x + 1


def give_values_and_a_variable(pair: Any, x: jax.Array) -> jax.Array:
    pair[1].a = nnx.Param(x + 1)
    return give_values(pair, x)


if nnx is not None:

    @operation("nnx.jit: values of variables")
    def _() -> Case:
        return changing_case(give_values)

    @operation("nnx.jit: a new variable")
    def _() -> Case:
        return changing_case(give_values_and_a_variable)
