"""Guards the promise of the page for those who come from Flax: each transformation of nnx does inside a function of
`partax.nnx.jit` what it does inside one of `nnx.jit`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from test_name_tables import FLAX_NNX, listed_names

from trees import assert_close

pytest.importorskip("flax")

from flax import nnx

import partax.nnx


def loss(net: nnx.Linear, x: jax.Array) -> jax.Array:
    return jnp.sum(net(x) ** 2)


def grow(net: nnx.Linear) -> None:
    net.bias[...] += 1


def grown(carry: Any) -> Any:
    grow(carry[0])
    return carry[0], carry[1] + 1


@nnx.custom_vjp
def doubled_gradient(net: nnx.Linear, x: jax.Array) -> jax.Array:
    return loss(net, x)


def backward(residual: Any, gradients: Any) -> Any:
    (of_net, _), of_loss = gradients
    return jax.tree.map(lambda leaf: 2 * of_loss * jnp.ones_like(leaf), of_net), jnp.zeros_like(residual)


doubled_gradient.defvjp(lambda net, x: (doubled_gradient(net, x), x), backward)

ROW = PartitionSpec()
MESH = Mesh(np.array(jax.devices()[:1]), ("data",))

CASES: dict[str, Callable[[nnx.Linear, jax.Array], Any]] = {
    "grad": lambda net, x: nnx.grad(loss)(net, x),
    "value_and_grad": lambda net, x: nnx.value_and_grad(loss)(net, x),
    "DiffState": lambda net, x: nnx.grad(loss, argnums=nnx.DiffState(0, nnx.PathContains("kernel")))(net, x),
    "jvp": lambda net, x: nnx.jvp(lambda x: loss(net, x), (x,), (x,), graph=False),
    "vjp": lambda net, x: nnx.vjp(lambda x: loss(net, x), x, graph=False)[0],
    "custom_vjp": lambda net, x: nnx.grad(doubled_gradient)(net, x),
    "vmap": lambda net, x: nnx.vmap(lambda net, x: net(x), in_axes=(None, 0))(net, x[None]),
    "pmap": lambda net, x: nnx.pmap(lambda net, x: net(x), in_axes=(None, 0))(net, x[None]),
    "shard_map": lambda net, x: nnx.shard_map(lambda net, x: net(x), mesh=MESH, in_specs=(ROW, ROW), out_specs=ROW)(
        net, x
    ),
    "StateAxes": lambda net, x: nnx.vmap(lambda net, x: net(x), in_axes=(nnx.StateAxes({...: None}), 0))(net, x[None]),
    "transform_metadata": lambda net, x: nnx.vmap(
        nnx.transform_metadata(lambda net, x: net(x), in_axes=(None, 0), partition="layers"), in_axes=(None, 0)
    )(net, x[None]),
    "scan": lambda net, x: nnx.scan(lambda net, x: net(x), in_axes=(None, 0), out_axes=0)(net, x[None]),
    "Carry": lambda net, x: nnx.scan(lambda carry, x: (carry + x, carry * x))(jnp.zeros(()), x),
    "while_loop": lambda net, x: nnx.while_loop(lambda carry: carry[1] < 3, grown, (net, 0.0))[1],
    "fori_loop": lambda net, x: nnx.fori_loop(0, 3, lambda i, carry: grown(carry), (net, 0.0))[1],
    "cond": lambda net, x: nnx.cond(x.sum() > 0, grow, lambda net: None, net),
    "switch": lambda net, x: nnx.switch(x.argmax(), [lambda net: None, lambda net: None, grow], net),
    "remat": lambda net, x: nnx.grad(nnx.remat(loss))(net, x),
    "checkify": lambda net, x: nnx.checkify(loss)(net, x)[1],
    "eval_shape": lambda net, x: jnp.zeros(nnx.eval_shape(lambda net, x: net(x), net, x).shape),
    "make_jaxpr": lambda net, x: jnp.zeros(len(nnx.make_jaxpr(loss, graph_updates=False)(net, x).jaxpr.eqns)),
}


AT_ONCE = ("value_and_grad", "vmap", "scan", "cond")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in AT_ONCE)) for name in CASES]
)
def test_it_does_the_same_inside(name: str) -> None:
    actual, expected = (
        (jit(CASES[name])(net, jnp.arange(3.0)), nnx.state(net))
        for jit, net in ((jit, nnx.Linear(3, 3, rngs=nnx.Rngs(0))) for jit in (partax.nnx.jit, nnx.jit))
    )
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(assert_close, actual, expected)


def test_each_name_of_the_page_is_here() -> None:
    assert {*CASES} == {*listed_names(FLAX_NNX, "stays")} - {
        "StateSharding"
    }  # of which test_nnx_options.py has the cases
