"""A configuration object in a static field counts by its content at the time of the call."""

import argparse
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import equinox
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax


@dataclasses.dataclass
class Plain:
    width: int = 3


@dataclasses.dataclass(slots=True)
class Slotted:
    width: int = 3


@dataclasses.dataclass
class Nested:
    width: int = 3
    inner: Plain = dataclasses.field(default_factory=Plain)
    names: list[str] = dataclasses.field(default_factory=lambda: ["a", "b"])


class OwnEquality:
    def __init__(self, width: int = 3) -> None:
        self.width = width

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality) and self.width == other.width

    __hash__ = None  # type: ignore[assignment]


class Module(equinox.Module):
    weight: jax.Array
    config: Any = equinox.field(static=True)


@flax.struct.dataclass
class Struct:
    weight: jax.Array
    config: Any = flax.struct.field(pytree_node=False)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    weight: jax.Array
    config: Any = dataclasses.field(metadata={"static": True})


CONFIGS = [Plain, Slotted, Nested, OwnEquality, argparse.Namespace, types.SimpleNamespace]
each_config = pytest.mark.parametrize("config", CONFIGS)


def scaling(jit: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """A compiled function, and the widths that it was traced with."""
    widths: list[int] = []

    def scale(model: Any, x: jax.Array) -> jax.Array:
        widths.append(model.config.width)
        return model.weight * x * model.config.width

    return jit(scale), widths


@each_config
@pytest.mark.parametrize("model", [Module, Struct, Registered])
def test_equal_configurations_share_a_trace_as_in_equinox(config: Callable[..., Any], model: Any) -> None:
    theirs, their_widths = scaling(equinox.filter_jit)
    ours, our_widths = scaling(partax.filter_jit(reuse_equal_functions=False))
    for width in (3, 3, 4, 4):
        tree = model(jnp.ones(3), config(width=width))
        np.testing.assert_array_equal(ours(tree, 2.0), theirs(tree, 2.0))
    assert our_widths == their_widths == [3, 4]
    value = config(width=3)
    tree = model(jnp.ones(3), value)
    for width in (3, 5, 3):
        value.width = width
        np.testing.assert_array_equal(ours(tree, 2.0), [2.0 * width] * 3)
    assert our_widths == [3, 4, 5]


@each_config
def test_a_configuration_as_an_argument_is_refused_with_the_remedy(config: Callable[..., Any]) -> None:
    value = config(width=3)
    remedy = r"frozen=True" if dataclasses.is_dataclass(value) else r"hash"
    with pytest.raises(TypeError, match=rf"`config`: found .*{remedy}"):
        partax.filter_jit(lambda config, x: x * config.width)(value, 1.0)


def test_a_list_in_a_configuration_counts_by_content() -> None:
    scale, widths = scaling(partax.filter_jit(reuse_equal_functions=False))
    value = Nested()
    tree = Module(jnp.ones(3), value)
    scale(tree, 1.0)
    value.names.append("c")
    scale(tree, 1.0)
    value.names.pop()
    scale(tree, 1.0)
    assert len(widths) == 2
