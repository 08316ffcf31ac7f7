"""A configuration object in a static field counts by its content, as it is when the call asks."""

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


CONFIGS: dict[str, Callable[..., Any]] = {
    "dataclass": Plain,
    "dataclass with slots": Slotted,
    "nested dataclass": Nested,
    "class with its own equality": OwnEquality,
    "argparse.Namespace": lambda width=3: argparse.Namespace(width=width),
    "SimpleNamespace": lambda width=3: types.SimpleNamespace(width=width),
}


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


MODELS = [Module, Struct, Registered]


def counted(jit: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    widths: list[int] = []

    def scale(model: Any, x: jax.Array) -> jax.Array:
        widths.append(model.config.width)
        return model.weight * x * model.config.width

    return jit(scale), widths


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_equal_configurations_share_a_trace_as_in_equinox(config: Callable[..., Any], model: Any) -> None:
    theirs, their_traces = counted(equinox.filter_jit)
    ours, our_traces = counted(partax.filter_jit(reuse_equal_functions=False))
    for value in (config(), config(), config(4), config(4)):
        built = model(jnp.ones(3), value)
        np.testing.assert_array_equal(ours(built, 2.0), theirs(built, 2.0))
    assert our_traces == their_traces == [3, 4]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_change_in_place_is_seen(config: Callable[..., Any], model: Any) -> None:
    scale, widths = counted(partax.filter_jit(reuse_equal_functions=False))
    value = config()
    built = model(jnp.ones(3), value)
    np.testing.assert_array_equal(scale(built, 2.0), 6.0)
    value.width = 5
    np.testing.assert_array_equal(scale(built, 2.0), 10.0)
    value.width = 3
    np.testing.assert_array_equal(scale(built, 2.0), 6.0)
    assert widths == [3, 5]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_as_an_argument_one_is_refused_with_the_remedy(config: Callable[..., Any]) -> None:
    value = config()
    remedy = r"frozen=True" if dataclasses.is_dataclass(value) else r"hash"
    with pytest.raises(TypeError, match=rf"`config`: found .*{remedy}"):
        partax.filter_jit(lambda config, x: x * config.width)(value, 1.0)


def test_a_list_in_a_configuration_counts_by_content() -> None:
    scale, widths = counted(partax.filter_jit(reuse_equal_functions=False))
    value = Nested()
    built = Module(jnp.ones(3), value)
    scale(built, 1.0)
    value.names.append("c")
    scale(built, 1.0)
    value.names.pop()
    scale(built, 1.0)
    assert len(widths) == 2
