"""Guards the promise that every transformation passes on every keyword, also one that is called as a parameter of ours,
looks like what it wraps, is a pytree of it, and makes nodes whose constructors check what they get of arrays alone."""

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import partax
import partax.debug
from transformed import assert_close_trees
from trees import Layer, array

NAMES = ["args", "callback", "cls", "f", "fn", "fun", "function", "kwargs", "name", "options", "self", "wrapper"]
X = jnp.ones(2)


def custom_vjp(fun: Any) -> Any:
    made = partax.filter_custom_vjp(fun)
    made.def_fwd(lambda perturbed, x, **more: (fun(x, **more), None))
    made.def_bwd(lambda residuals, g, perturbed, x, **more: g * jnp.ones(2))
    return made


def custom_jvp(fun: Any) -> Any:
    made = partax.filter_custom_jvp(fun)
    made.def_jvp(lambda primals, tangents, **more: (fun(*primals, **more), jnp.float32(0)))
    return made


# What makes a wrapper; and what its call takes beside the function's own keywords.
ENTRIES: dict[str, Callable[[Any], Any]] = {
    "filter_jit": partax.filter_jit,
    "filter_grad": partax.filter_grad,
    "filter_value_and_grad": partax.filter_value_and_grad,
    "filter_jacfwd": partax.filter_jacfwd,
    "filter_jacrev": partax.filter_jacrev,
    "filter_hessian": partax.filter_hessian,
    "filter_checkpoint": partax.filter_checkpoint,
    "filter_custom_vjp": custom_vjp,
    "filter_custom_jvp": custom_jvp,
    "filter_vmap": lambda fun: partax.filter_vmap(fun, in_axes=None, axis_size=2),
    "filter_make_jaxpr": partax.filter_make_jaxpr,
    "assert_max_traces": lambda fun: partax.debug.assert_max_traces(fun, max_traces=100_000),
    "eval_shape": lambda fun: partax.filter_jit(fun).eval_shape,
    "a method": lambda fun: type("C", (), {"m": partax.filter_jit(lambda owner, x, /, **more: fun(x, **more))})().m,
    "a bound function": lambda fun: partax.filter_jit(fun).bind(X),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_keyword_reaches_the_function(entry: str) -> None:
    received: list[list[str]] = []

    def fun(x: Any, /, **more: Any) -> Any:
        received.append(sorted(more))
        return (x**2).sum()

    wrapped = ENTRIES[entry](fun)
    given = () if entry == "a bound function" else (X,)
    wrapped(*given, **dict.fromkeys(NAMES, entry))  # a value that no other entry has had traced
    assert sorted(NAMES) in received


def plain(x: Any, *, flag: bool = False) -> Any:
    """A function with a docstring."""
    return x


@pytest.mark.parametrize("entry", [name for name in ENTRIES if name.startswith("filter_") and "custom" not in name])
def test_a_wrapper_looks_like_what_it_wraps_and_is_a_pytree_of_it(entry: str) -> None:
    wrapped, of_layer = ENTRIES[entry](plain), ENTRIES[entry](Layer(array(2, 2)))
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        assert getattr(wrapped, name) == getattr(plain, name)
    assert wrapped.__wrapped__ is plain and inspect.signature(wrapped) == inspect.signature(plain)
    assert repr(wrapped) == f"<partax.{entry} of plain>" and repr(of_layer) == f"<partax.{entry} of Layer>"
    for again in (jax.tree.map(lambda leaf: leaf, wrapped), pickle.loads(pickle.dumps(wrapped))):
        assert type(again) is type(wrapped) and jax.tree.structure(again) == jax.tree.structure(wrapped)
    arrays = [leaf for leaf in jax.tree.leaves(of_layer) if partax.is_array(leaf)]
    assert [leaf is of_layer.__wrapped__.weight for leaf in arrays] == [True]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Checked:
    a: Any

    def __post_init__(self) -> None:
        assert jnp.issubdtype(self.a.dtype, jnp.floating) and self.a.ndim > 1


def double(node: Any) -> Any:
    return type(node)(node.a * 2)


def loss(node: Any) -> Any:
    return jnp.sum(node.a**2)


def test_nodes_are_built_with_arrays_alone() -> None:
    node = Checked(jnp.ones((2, 3)))
    assert_close_trees(partax.filter_grad(loss)(node), jax.grad(loss)(node))
    assert_close_trees(partax.filter_checkpoint(double)(node), double(node))
    assert_close_trees(partax.filter_jvp(double, (node,), (node,)), jax.jvp(double, (node,), (node,)))
    result, pull = partax.filter_vjp(double, node)
    assert_close_trees((result, pull(node)), (double(node), jax.vjp(double, node)[1](node)))
    assert jax.tree.leaves(partax.filter_eval_shape(double, node)) == jax.tree.leaves(jax.eval_shape(double, node))
    assert_close_trees(partax.filter_pure_callback(double, node, result_shape_dtypes=node), double(node))

    assert str(partax.filter_make_jaxpr(double)(node)[0]) == str(jax.make_jaxpr(double)(node))
    converted = partax.filter_closure_convert(double, node)
    assert_close_trees(partax.filter_jit(lambda f, node: f(node))(converted, node), double(node))

    batch = Checked(jnp.ones((4, 2, 3)))
    assert_close_trees(partax.filter_vmap(double)(batch), jax.vmap(double)(batch))
    same = partax.filter_vmap(lambda x, node: (x, node), in_axes=(0, None), out_axes=(0, None))
    assert_close_trees(same(jnp.ones(4), batch), (jnp.ones(4), batch))
    mesh = Mesh(np.array(jax.devices()[:1]), ("i",))
    options: Any = {"mesh": mesh, "in_specs": PartitionSpec("i"), "out_specs": PartitionSpec("i")}
    assert_close_trees(partax.filter_shard_map(double, **options)(batch), jax.shard_map(double, **options)(batch))


def test_custom_derivatives() -> None:
    node = Checked(jnp.ones((2, 3)))

    function = lambda node, other: (double(node), other)
    forward, backward = partax.filter_custom_jvp(function), partax.filter_custom_vjp(function)
    forward.def_jvp(lambda primals, tangents: (function(*primals), (Checked(tangents[0].a * 3), None)))

    @backward.def_fwd
    def fwd(perturbed: Any, node: Any, other: Any) -> Any:
        assert jax.tree.leaves(perturbed) == [True]
        return function(node, other), node

    backward.def_bwd(lambda residuals, cotangent, *_: Checked(cotangent[0].a * 3))
    for f in (forward, backward):
        assert_close_trees(f(node, "text"), (double(node), "text"))
        gradient = partax.filter_grad(lambda it, f=f: loss(f(it, node)[0]))(node)
        assert_close_trees(gradient, type(node)(jnp.full((2, 3), 12.0)))
