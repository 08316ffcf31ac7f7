"""Guards the promise that no transformation loses silently what its function does to an nnx object: inside of
partax.nnx.jit the change is made, as by nnx's own, or else it is an error that names the Variable and a remedy."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh, PartitionSpec

import partax
import partax.nnx

X = jnp.ones((2, 4))


class Net(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.linear = nnx.Linear(4, 4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.total = nnx.Variable(jnp.zeros(()))
        self.mode = "first"


NET = Net()


def new_net() -> Net:
    return nnx.clone(NET)


def dropout(net: Any) -> jax.Array:
    return net.drop(net.linear(X)).sum()


def statistics(net: Any) -> jax.Array:
    return (net.norm(net.linear(X)) ** 2).sum()


def own_variable(net: Any) -> jax.Array:
    net.total[...] += net.linear(X).sum()
    return net.linear(X).sum()


def new_variable(net: Any) -> jax.Array:
    net.seen = nnx.Intermediate(net.linear(X))
    return net.linear(X).sum()


def attribute(net: Any) -> jax.Array:
    net.mode = "second"
    return net.linear(X).sum()


def deleted(net: Any) -> jax.Array:
    del net.norm
    return net.linear(X).sum()


def evaluated(net: Any) -> jax.Array:
    net.norm.eval()
    return net.linear(X).sum()


CHANGES: dict[Any, str] = {
    dropout: "drop.rngs.count",
    statistics: "norm.mean",
    own_variable: "total",
    new_variable: "seen",
    attribute: "mode",
    deleted: "norm",
    evaluated: "norm.use_running_average",
}
ZERO = jnp.float32(0)
F32 = jax.ShapeDtypeStruct((), jnp.float32)

Function = Callable[[Any], Any]


def tangents(net: Net) -> Any:
    return partax.filter(jax.tree.map(lambda leaf: leaf, net), partax.is_inexact_array)


MADE: dict[str, Callable[[Function], Function]] = {
    "filter_grad": partax.filter_grad,
    "filter_value_and_grad": partax.filter_value_and_grad,
    "filter_jacfwd": partax.filter_jacfwd,
    "filter_jacrev": partax.filter_jacrev,
    "filter_hessian": lambda f: partax.filter_hessian(f, wrt=partax.by_path("linear/bias/**")),
    "filter_checkpoint": partax.filter_checkpoint,
    "filter_jvp": lambda f: lambda net: partax.filter_jvp(f, (net,), (tangents(net),)),
    "filter_vjp": lambda f: lambda net: partax.filter_vjp(f, net)[0],
    "filter_grad of filter_checkpoint": lambda f: partax.filter_grad(partax.filter_checkpoint(f)),
    "filter_grad, another argument": lambda f: lambda net: partax.filter_grad(lambda x, net: x * f(net))(ZERO, net),
    "filter_grad, by name": lambda f: lambda net: partax.filter_grad(lambda x, net: x * f(net))(ZERO, net=net),
    "filter_jvp, by name": lambda f: lambda net: partax.filter_jvp(lambda x, net: f(net), (ZERO,), (ZERO,), net=net)[0],
}
"""Those that make the change inside of partax.nnx.jit."""


def stacked(net: Net) -> Net:
    return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), net)


def custom_jvp(fun: Function, rule: Function) -> Function:
    called = partax.filter_custom_jvp(fun)
    called.def_jvp(lambda primals, tangents: (rule(primals[0]), None))
    return called


def differentiated(fun: Function) -> Function:
    def loss(net: Any) -> jax.Array:
        return fun(net) + net.linear.bias[...].sum()

    return partax.filter_grad(loss)


def custom_vjp(forward: Function, backward: Function) -> Function:
    called = partax.filter_custom_vjp(lambda net: ZERO)
    called.def_fwd(lambda perturbed, net: (forward(net), net))
    called.def_bwd(lambda residuals, cotangent, perturbed, net: (backward(net), jax.tree.map(jnp.zeros_like, net))[1])
    return differentiated(called)


def zero(net: Any) -> jax.Array:
    return ZERO


def shard_map(fun: Function) -> Function:
    mesh = Mesh(jax.devices()[:1], ("data",))
    return partax.filter_shard_map(fun, mesh=mesh, in_specs=None, out_specs=PartitionSpec())


REFUSED: dict[str, Callable[[Function], Function]] = {
    "filter_cond": lambda f: lambda net: partax.filter_cond(jnp.array(True), f, zero, net),
    "filter_switch": lambda f: lambda net: partax.filter_switch(jnp.array(1), [zero, f], net),
    "filter_scan": lambda f: (
        lambda net: partax.filter_scan(lambda carry, _: ((f(carry[1]), net), None), (ZERO, net), length=2)[0][0]
    ),
    "filter_scan, scanned": lambda f: lambda net: partax.filter_scan(lambda c, net: (c, f(net)), ZERO, stacked(net)),
    "filter_map": lambda f: lambda net: partax.filter_map(f, stacked(net)),
    "filter_while_loop": lambda f: lambda net: partax.filter_while_loop(lambda c: f(c) > 1e9, lambda c: c, net),
    "filter_fori_loop": lambda f: (
        lambda net: partax.filter_fori_loop(0, 2, lambda i, carry: (f(carry[1]), net), (ZERO, net))
    ),
    "scan_layers": lambda f: lambda net: partax.scan_layers([net], ZERO, call=lambda layer, x: x + f(layer)),
    "filter_vmap": lambda f: lambda net: partax.filter_vmap(f)(stacked(net)),
    "filter_vmap, no axis": lambda f: (
        lambda net: partax.filter_vmap(lambda net, x: f(net) + x, in_axes=(None, 0))(net, jnp.ones(3))
    ),
    "filter_shard_map": shard_map,
    "filter_custom_jvp": lambda f: custom_jvp(f, zero),
    "filter_custom_jvp, rule": lambda f: differentiated(custom_jvp(zero, f)),
    "filter_custom_vjp, forward": lambda f: custom_vjp(f, zero),
    "filter_custom_vjp, backward": lambda f: custom_vjp(zero, f),
    "filter_eval_shape": lambda f: lambda net: partax.filter_eval_shape(f, net).shape,
    "filter_make_jaxpr": lambda f: lambda net: partax.filter_make_jaxpr(f)(net)[1].shape,
    "filter_closure_convert": lambda f: lambda net: partax.filter_closure_convert(lambda net: f(net), net)(net),
    "filter_pure_callback": lambda f: lambda net: partax.filter_pure_callback(f, net, result_shape_dtypes=F32),
    "filter_io_callback": lambda f: lambda net: partax.filter_io_callback(f, net, result_shape_dtypes=F32),
}


def assert_same_state(net: Net, expected: Net) -> None:
    assert net.mode == expected.mode
    states = nnx.to_flat_state(nnx.state(net)), nnx.to_flat_state(nnx.state(expected))
    assert [path for path, _ in states[0]] == [path for path, _ in states[1]]
    for (_, one), (_, other) in zip(*states, strict=True):
        if not jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(one[...], other[...], rtol=1e-5, atol=1e-6)


JITS: list[Callable[[Function], Function]] = [lambda f: f, partax.filter_jit, partax.nnx.jit]


@pytest.mark.parametrize(
    ("transformed", "change"),
    [
        pytest.param(name, [*CHANGES][(i + j) % len(CHANGES)], marks=[pytest.mark.nightly] * (j > 0))
        for i, name in enumerate([*MADE, *REFUSED])
        for j in (0, 3)
    ],
)
def test_a_change_is_made_inside_of_nnx_jit_or_is_an_error_with_its_path(transformed: str, change: Function) -> None:
    function = {**MADE, **REFUSED}[transformed](change)
    for jit in JITS if transformed in MADE else JITS[::2]:
        net, expected = new_net(), new_net()
        if jit is partax.nnx.jit and transformed in MADE:
            jit(function)(net)
            change(expected)
        else:
            with pytest.raises(
                Exception, match=rf"{CHANGES[change]}`: the function under .*return the object"
            ) as error:
                jax.block_until_ready(jit(function)(net))
            assert isinstance(error.value, ValueError) or "callback" in transformed
        assert_same_state(net, expected)


def test_a_step_changes_and_learns_as_with_value_and_grad_of_nnx() -> None:
    nets = new_net(), new_net()

    def step(net: Net, value_and_grad: Any) -> Any:
        return value_and_grad(lambda net: dropout(net) + statistics(net))(net)

    for _ in range(2):
        value, gradient = partax.nnx.jit(step)(nets[0], partax.filter_value_and_grad)
        right, expected = nnx.jit(step, static_argnums=1)(nets[1], nnx.value_and_grad)
        np.testing.assert_allclose(value, right, rtol=1e-5)
        np.testing.assert_allclose(gradient.linear.kernel[...], expected.linear.kernel[...], rtol=1e-4, atol=1e-5)
        assert_same_state(*nets)


def with_itself(net: Any) -> Any:
    return dropout(net), net


@pytest.mark.parametrize(
    "keeps",
    [
        lambda net: partax.filter_grad(with_itself, has_aux=True)(net)[1],
        lambda net: partax.filter_checkpoint(with_itself)(net)[1],
        lambda net: partax.filter_vjp(lambda net: (dropout(net), nnx.state(net)), net, has_aux=True)[2],
        lambda net: partax.filter_scan(lambda net, _: (net, dropout(net)), net, length=1)[0],
        lambda net: partax.filter_cond(jnp.array(True), lambda net: (dropout(net), net)[1], lambda net: net, net),
    ],
)
def test_what_is_returned_is_not_lost(keeps: Function) -> None:
    for jit in JITS:
        assert int(jit(keeps)(new_net()).drop.rngs.count[...]) == 1


@pytest.mark.parametrize(("transformed", "jit"), [*zip([*MADE, *REFUSED], itertools.cycle(JITS[1:]), strict=False)])
def test_what_changes_nothing_is_no_error(transformed: str, jit: Any) -> None:
    def read(net: Net) -> jax.Array:
        net.mode = "".join(["fir", "st"])
        return net.linear(X).sum()

    net = new_net()
    jax.block_until_ready(jit({**MADE, **REFUSED}[transformed](read))(net))
    assert_same_state(net, new_net())


def test_a_captured_object_is_refused_as_by_nnx() -> None:
    net = new_net()

    def captures(x: Any) -> jax.Array:
        return x * dropout(net)

    every: list[Any] = [partax.filter_grad, partax.filter_checkpoint, partax.filter_jacrev, partax.filter_vmap]
    for transformed in every:
        given: Any = jnp.ones(1) if transformed is partax.filter_vmap else ZERO
        for jit in JITS:
            with pytest.raises(Exception, match="trace level"):
                jit(transformed(captures))(given)
    assert_same_state(net, new_net())
