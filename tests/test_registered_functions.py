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


def by_fields(cls: type, step: int = 1) -> tuple[Any, Any, Any]:
    """Functions that give fields alone, and no marker in the aux data; with -1 the last child first."""
    fields = dataclasses.fields(cls)
    statics = [f.name for f in fields if f.metadata.get("static", False)]
    children = [f.name for f in fields if f.name not in statics][::step]

    def to_iter(it: Any) -> Any:
        return [getattr(it, n) for n in children], tuple(getattr(it, n) for n in statics)

    def with_keys(it: Any) -> Any:
        values, aux = to_iter(it)
        return list(zip(map(jax.tree_util.GetAttrKey, children), values, strict=True)), aux

    def unflatten(aux: Any, values: Any) -> Any:
        made = object.__new__(cls)
        for name, value in zip([*children, *statics], [*values, *aux], strict=True):
            object.__setattr__(made, name, value)
        return made

    return with_keys, unflatten, to_iter


def marked(cls: type, flatten_with_keys: Any, flatten_func: Any, unflatten_func: Any) -> tuple[Any, Any, Any]:
    """Flattened as ever; rebuilt with a mark."""

    def rebuilt(aux: Any, values: Any) -> Any:
        made = unflatten_func(aux, values)
        object.__setattr__(made, "rebuilt", True)
        return made

    return flatten_with_keys, rebuilt, flatten_func


REGISTRATIONS: dict[str, Callable[..., Any]] = {
    "by fields": lambda cls, **_: by_fields(cls),
    "reversed": lambda cls, **_: by_fields(cls, -1),
    "rebuilding": marked,
}


@pytest.fixture(params=REGISTRATIONS)
def registered_otherwise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """An Equinox module whose class has another registration than modules have today."""
    equinox_family._missing()  # of modules as they are
    register, of_class = jax.tree_util.register_pytree_with_keys, REGISTRATIONS[request.param]
    monkeypatch.setattr(
        jax.tree_util, "register_pytree_with_keys", lambda cls, **given: register(cls, *of_class(cls, **given))
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


@pytest.fixture
def calls_no_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A jax that rebuilds registered dataclasses by setting the fields of an empty instance."""

    def register_dataclass(cls: type) -> type:
        with_keys, unflatten, flatten = by_fields(cls)
        flatten.__qualname__ = "register_dataclass.<locals>.to_iter"
        jax.tree_util.register_pytree_with_keys(cls, with_keys, unflatten, flatten)
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
