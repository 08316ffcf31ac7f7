"""Guards that a family which partax reads by itself agrees with jax, also where its classes are registered anew."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import _core
from partax._families import dataclasses as dataclass_family
from partax._families import equinox as equinox_family


def _names(cls: type, static: bool) -> list[str]:
    return [f.name for f in dataclasses.fields(cls) if bool(f.metadata.get("static", False)) is static]


def _made(cls: type, names: list[str], values: Any) -> Any:
    made = object.__new__(cls)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


def _by_fields(cls: type, register: Callable[..., None], step: int = 1) -> None:
    """Fields alone, and no marker in the aux data, as if `register_dataclass` took modules; with -1 turned round."""
    children, statics = _names(cls, False)[::step], _names(cls, True)
    register(
        cls,
        lambda it: (
            [(jax.tree_util.GetAttrKey(n), getattr(it, n)) for n in children],
            tuple(getattr(it, n) for n in statics),
        ),
        lambda aux, values: _made(cls, [*children, *statics], [*values, *aux]),
    )


def _rebuilding_otherwise(
    cls: type, register: Callable[..., None], flatten_with_keys: Any, flatten: Any, unflatten: Any
) -> None:
    """Flattened as ever; rebuilt with a mark."""

    def rebuilt(aux: Any, values: Any) -> Any:
        made = unflatten(aux, values)
        object.__setattr__(made, "rebuilt", True)
        return made

    register(cls, flatten_with_keys, rebuilt, flatten)


_REGISTRATIONS = {
    "native": lambda cls, register, **_: _by_fields(cls, register),
    "reversed": lambda cls, register, **_: _by_fields(cls, register, -1),
    "rebuilding": lambda cls, register, flatten_with_keys, flatten_func, unflatten_func: _rebuilding_otherwise(
        cls, register, flatten_with_keys, flatten_func, unflatten_func
    ),
}


@pytest.fixture(params=_REGISTRATIONS)
def registered_otherwise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """An Equinox module whose class has another registration than modules have today."""
    equinox_family._missing()  # of modules as they are
    register = jax.tree_util.register_pytree_with_keys
    monkeypatch.setattr(
        jax.tree_util,
        "register_pytree_with_keys",
        lambda cls, **given: _REGISTRATIONS[request.param](cls, register, **given),
    )

    class Layer(eqx.Module):
        weight: Any
        bias: Any
        scale: float = eqx.field(static=True)

    return Layer


def _same(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_module_that_is_registered_otherwise_is_what_jax_says(registered_otherwise: type, traces: Any) -> None:
    layer: Any = registered_otherwise(jnp.ones(2), jnp.zeros(3), 2.0)
    assert _core.node_kind(layer) == "registered"
    expected = jax.jit(lambda layer: jax.tree.map(lambda leaf: leaf * 2.0 + 1, layer))(layer)

    @partax.filter_jit
    def step(layer: Any) -> Any:
        traces.tick()
        return jax.tree.map(lambda leaf: leaf * layer.scale + 1, layer)

    for found in (step(layer), step(layer)):
        _same(found, expected)
        assert vars(found).keys() == vars(expected).keys()
    assert traces.count == 1
    arrays, rest = partax.partition(layer, partax.is_array)
    assert [leaf.size for leaf in jax.tree.leaves(arrays)] == [leaf.size for leaf in jax.tree.leaves(layer)]
    _same(partax.combine(arrays, rest), jax.tree.map(lambda leaf: leaf, layer))
    other: Any = registered_otherwise(jnp.ones(2), jnp.zeros(3), 3.0)
    step(other)
    assert traces.count == 2


def test_a_usual_module_is_read_by_its_fields() -> None:
    class Layer(eqx.Module):
        weight: Any

    assert _core.node_kind(Layer(jnp.ones(2))) == "module"


@pytest.fixture
def calls_no_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A jax that rebuilds registered dataclasses by setting the fields of an empty instance."""

    def register_dataclass(cls: type) -> type:
        children, statics = _names(cls, False), _names(cls, True)

        def to_iter(it: Any) -> Any:
            return [getattr(it, n) for n in children], tuple(getattr(it, n) for n in statics)

        to_iter.__qualname__ = "register_dataclass.<locals>.to_iter"
        jax.tree_util.register_pytree_with_keys(
            cls,
            lambda it: ([(jax.tree_util.GetAttrKey(n), getattr(it, n)) for n in children], to_iter(it)[1]),
            lambda aux, values: _made(cls, [*children, *statics], [*values, *aux]),
            to_iter,
        )
        return cls

    monkeypatch.setattr(jax.tree_util, "register_dataclass", register_dataclass)
    dataclass_family._calls_dataclasses.cache_clear()
    monkeypatch.setattr(
        dataclass_family, "_calls_dataclasses", functools.cache(dataclass_family._calls_dataclasses.__wrapped__)
    )


def test_a_dataclass_is_not_called_where_jax_does_not(calls_no_classes: None) -> None:
    calls: list[Any] = []

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Point:
        x: Any
        kind: str = dataclasses.field(metadata={"static": True}, default="plain")

        def __post_init__(self) -> None:
            calls.append(self)

    point = Point(jnp.ones(2))
    found = partax.filter_jit(lambda point: jax.tree.map(lambda leaf: leaf + 1, point))(point)
    _same(found, Point(jnp.full(2, 2.0)))
    assert len(calls) == 2, "the two that are made here"
    assert _core.node_kind(point) == "registered"
