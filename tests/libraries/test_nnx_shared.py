"""Guards the promise that an nnx object in two places never comes apart: a filter_ function refuses it with both paths,
and partax.nnx.jit keeps it one."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import partax
import partax.nnx

X = jnp.ones(2)


class Tied(nnx.Module):
    def __init__(self, tie: Callable[[Any], Any]) -> None:
        self.a, self.b = (nnx.Linear(2, 2, rngs=nnx.Rngs(i)) for i in range(2))
        tie(self)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.b(self.a(x)).sum()


def tied_module() -> Tied:
    return Tied(lambda net: setattr(net, "b", net.a))


def tied_list() -> nnx.List[Any]:
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    return nnx.List([layer, layer])


def two_in_a_tree() -> dict[str, Any]:
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    return {"a": layer, "b": [layer]}


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str, str]] = {
    "module": (tied_module, lambda net: net(X), "net.b", "net.a"),
    "variable": (
        lambda: Tied(lambda net: setattr(net.b, "kernel", net.a.kernel)),
        lambda net: net(X),
        "net.b.kernel",
        "net.a.kernel",
    ),
    "list": (tied_list, lambda net: net[1](net[0](X)).sum(), "net[1]", "net[0]"),
    "tree": (two_in_a_tree, lambda net: net["b"][0](net["a"](X)).sum(), "net['b'][0]", "net['a']"),
}
TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "filter_jit": partax.filter_jit,
    "filter_grad": partax.filter_grad,
    "filter_value_and_grad": partax.filter_value_and_grad,
    "filter_jit of filter_grad": lambda f: partax.filter_jit(partax.filter_grad(f)),
    "filter_jacrev": partax.filter_jacrev,
    "filter_checkpoint": partax.filter_checkpoint,
    "filter_vmap": lambda f: partax.filter_vmap(f, in_axes=None, axis_size=2),
    "filter_vjp": lambda f: lambda net: partax.filter_vjp(lambda net: f(net), net),
    "filter_eval_shape": lambda f: lambda net: partax.filter_eval_shape(lambda net: f(net), net),
}


@pytest.mark.parametrize("transformed", TRANSFORMED)
@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_with_both_paths(case: str, transformed: str) -> None:
    make, use, second, first = CASES[case]
    for jit in (lambda f: f, partax.nnx.jit):
        with pytest.raises(ValueError, match=re.escape(f"`{second}`: found the `")) as caught:
            jit(TRANSFORMED[transformed](lambda net: use(net)))(make())
        assert f"that is `{first}` too" in str(caught.value) and "partax.nnx.jit" in str(caught.value)


def test_in_loops_and_branches() -> None:
    net = tied_module()
    for call in (
        lambda: partax.filter_cond(jnp.array(True), lambda net: net(X), lambda net: X.sum(), net),
        lambda: partax.filter_scan(lambda net, _: (net, net(X)), net, length=2),
        lambda: partax.filter_fori_loop(0, 2, lambda _, net: net, net),
        lambda: partax.filter_while_loop(lambda net: net(X) > 1e9, lambda net: net, net),
    ):
        with pytest.raises(ValueError, match=r"\.b`: found the `Linear` that is `.*\.a` too"):
            call()


def in_turn(net: Any, other: Any) -> Any:
    return other(net(X)).sum()


def test_two_arguments_and_two_layers() -> None:
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="`other`: found the `Linear` that is `net` too"):
        partax.filter_grad(in_turn)(layer, layer)
    with pytest.raises(ValueError, match="`other`: found the `Linear` that is `net` too"):
        partax.filter_jit(in_turn)(layer, other=layer)
    with pytest.raises(ValueError, match=r"`layers\[1\]`: found the `Linear` that is `layers\[0\]` too"):
        partax.scan_layers([layer, layer], X)


@pytest.mark.parametrize("case", CASES)
def test_nnx_jit_keeps_it_one(case: str) -> None:
    make, use, _, _ = CASES[case]

    def gradients(net: Any) -> Any:
        return nnx.grad(use)(net)

    ours, theirs = partax.nnx.jit(gradients)(make()), nnx.jit(gradients)(make())
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_equal_objects_and_shared_arrays_are_no_shared_objects() -> None:
    one = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    other = nnx.clone(one)
    other.kernel = nnx.Param(one.kernel[...])
    gradient = partax.filter_grad(in_turn)(one, other)
    right = nnx.grad(in_turn)(one, other)
    np.testing.assert_allclose(gradient.kernel[...], right.kernel[...], rtol=1e-5)
    array = jnp.ones(2)

    def product(tree: Any) -> Any:
        return (tree["a"] * tree["b"]).sum()

    both: Any = partax.filter_grad(product)({"a": array, "b": array})
    assert both["a"][0] == both["b"][0] == 1
