"""Guards the promise that nodes whose constructors check what they get pass through the transformations as through
jax's, which build them with arrays alone."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import partax
from transformed import assert_close_trees


class _Checked:
    def __init__(self, a: Any) -> None:
        assert a.ndim > 1
        self.a = a


class _Shaped:
    def __init__(self, a: Any) -> None:
        self.a, self.shape = a, a.shape


jax.tree_util.register_pytree_node(_Checked, lambda node: ((node.a,), None), lambda _, children: _Checked(*children))
jax.tree_util.register_pytree_with_keys(
    _Shaped,
    lambda node: (((jax.tree_util.GetAttrKey("a"), node.a),), None),
    lambda _, children: _Shaped(*children),
)


def double(node: Any) -> Any:
    return type(node)(node.a * 2)


def loss(node: Any) -> Any:
    return jnp.sum(node.a**2)


@pytest.mark.parametrize("cls", [_Checked, _Shaped])
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
