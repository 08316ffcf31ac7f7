"""Guards the promise that nodes whose constructors check what they get pass through the transformations as through
jax's, which build them with arrays alone."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

import partax
from transformed import assert_close_trees


class _Checked:
    def __init__(self, a: Any) -> None:
        assert a.ndim > 1
        self.a = a


class _Shaped:
    def __init__(self, a: Any) -> None:
        self.a, self.shape = a, a.shape


@functools.partial(jax.tree_util.register_dataclass, data_fields=["a"], meta_fields=[])
@dataclasses.dataclass
class _Dataclass:
    a: Any

    def __post_init__(self) -> None:
        assert jnp.issubdtype(self.a.dtype, jnp.floating) and self.a.ndim > 0


jax.tree_util.register_pytree_node(_Checked, lambda node: ((node.a,), None), lambda _, children: _Checked(*children))
jax.tree_util.register_pytree_with_keys(
    _Shaped, lambda node: (((jax.tree_util.GetAttrKey("a"), node.a),), None), lambda _, children: _Shaped(*children)
)


def double(node: Any) -> Any:
    return type(node)(node.a * 2)


def loss(node: Any) -> Any:
    return jnp.sum(node.a**2)


CLASSES = [_Checked, _Shaped, _Dataclass]


@pytest.mark.parametrize("cls", CLASSES)
def test_nodes_are_built_with_arrays_alone(cls: Any) -> None:
    node = cls(jnp.ones((2, 3)))
    assert_close_trees(partax.filter_grad(loss)(node), jax.grad(loss)(node))
    assert_close_trees(partax.filter_value_and_grad(loss)(node), jax.value_and_grad(loss)(node))
    assert_close_trees(partax.filter_checkpoint(double)(node), double(node))
    assert_close_trees(partax.filter_jvp(double, (node,), (node,)), jax.jvp(double, (node,), (node,)))
    result, pull = partax.filter_vjp(double, node)
    assert_close_trees((result, pull(node)), (double(node), jax.vjp(double, node)[1](node)))
    assert jax.tree.leaves(partax.filter_eval_shape(double, node)) == jax.tree.leaves(jax.eval_shape(double, node))
    assert_close_trees(partax.filter_pure_callback(double, node, result_shape_dtypes=node), double(node))


@pytest.mark.parametrize("cls", CLASSES)
def test_batched_and_divided(cls: Any) -> None:
    batch = cls(jnp.ones((4, 2, 3)))
    assert_close_trees(partax.filter_vmap(double)(batch), jax.vmap(double)(batch))
    assert_close_trees(partax.filter_vmap(double, out_axes=1)(batch), jax.vmap(double, out_axes=1)(batch))
    same = partax.filter_vmap(lambda x, node: (x, node), in_axes=(0, None), out_axes=(0, None))
    assert_close_trees(same(jnp.ones(4), batch), (jnp.ones(4), batch))
    mesh = Mesh(np.array(jax.devices()[:1]), ("i",))
    options: Any = {"mesh": mesh, "in_specs": PartitionSpec("i"), "out_specs": PartitionSpec("i")}
    assert_close_trees(partax.filter_shard_map(double, **options)(batch), jax.shard_map(double, **options)(batch))


@pytest.mark.parametrize("cls", CLASSES)
def test_programs(cls: Any) -> None:
    node = cls(jnp.ones((2, 3)))
    jaxpr, structs, static = partax.filter_make_jaxpr(lambda node: (double(node), "text"))(node)
    assert str(jaxpr) == str(jax.make_jaxpr(double)(node))
    struct = jax.eval_shape(double, node).a
    assert (jax.tree.leaves(structs), jax.tree.leaves(static)) == ([struct], [struct, "text"])
    assert jax.tree.leaves(partax.combine(structs, static)) == [struct, "text"]
    held = jnp.full((2, 3), 2.0)
    converted = partax.filter_closure_convert(lambda node: type(node)(node.a * held), node)
    assert_close_trees(converted(node), double(node))
    assert converted.out_struct.a == jax.eval_shape(double, node).a == converted.in_struct[0][0].a
    with pytest.raises(ValueError, match=r"`args\[0\].*`: found float32\[3,3\], expected float32\[2,3\]"):
        converted(cls(jnp.ones((3, 3))))


@pytest.mark.parametrize("cls", CLASSES)
def test_custom_derivatives(cls: Any) -> None:
    node = cls(jnp.ones((2, 3)))

    @partax.filter_custom_jvp
    def forward(node: Any, other: Any) -> Any:
        return double(node), other

    @forward.def_jvp
    def rule(primals: Any, tangents: Any) -> Any:
        return (double(primals[0]), primals[1]), (type(node)(tangents[0].a * 3), None)

    tripled = type(node)(jnp.full((2, 3), 12.0))
    assert_close_trees(partax.filter_grad(lambda it: loss(forward(it, node)[0]))(node), tripled)
    assert_close_trees(partax.filter_grad(lambda x: loss(forward(type(node)(x), node)[0]))(node.a), tripled.a)
    assert_close_trees(forward(node, "text"), (double(node), "text"))

    @partax.filter_custom_vjp
    def backward(node: Any, other: Any) -> Any:
        return double(node), other

    @backward.def_fwd
    def fwd(perturbed: Any, node: Any, other: Any) -> Any:
        assert jax.tree.leaves(perturbed) == [True]
        return (double(node), other), node

    @backward.def_bwd
    def bwd(residuals: Any, cotangent: Any, perturbed: Any, node: Any, other: Any) -> Any:
        return type(residuals)(cotangent[0].a * 3)

    assert_close_trees(partax.filter_grad(lambda it: loss(backward(it, node)[0]))(node), tripled)
    assert_close_trees(backward(node, node), (double(node), node))
