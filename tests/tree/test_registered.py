"""Guards that a class registered with Python functions is what jax makes of it, in as few calls of these as can be."""

from typing import Any

import jax
import numpy as np
import pytest

import partax
from trees import add_one, array

LOG: list[str] = []


class Pair:
    """Two children and a name."""

    def __init__(self, x: Any, y: Any, name: Any) -> None:
        self.x, self.y, self.name = x, y, name


@pytest.mark.parametrize("items", [tuple, list, iter], ids=lambda items: items.__name__)
def test_children_come_in_any_form_and_each_function_is_called_once(items: Any) -> None:
    cls: Any = type("Logged", (Pair,), {})

    def flatten(node: Any) -> Any:
        LOG.append("flatten")
        return items((node.x, node.y)), node.name

    def unflatten(name: Any, children: Any) -> Any:
        LOG.append("unflatten")
        assert type(children) is tuple
        return cls(*children, name)

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    step = partax.filter_jit(add_one)
    node = cls(array(2), {"b": array(3), "a": array(1)}, "name")
    step(node)
    expected = jax.jit(add_one)(node)
    LOG.clear()
    result = step(node)
    assert LOG == ["flatten", "unflatten"]
    assert type(result) is cls and result.name == "name"
    np.testing.assert_array_equal(result.x, expected.x)
    np.testing.assert_array_equal(result.y["a"], expected.y["a"])
    np.testing.assert_array_equal(partax.combine(*partax.partition(node, partax.is_array)).x, node.x)
