"""Guards that the classes of flax.struct, chex, penzai and jax's Partial, and those of users, are what their functions
make of them, without these being called, and that one which does something else is left to its functions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import pytest

import partax
from partax import _core
from partax._families import fields
from reference import assert_exact
from trees import array

flax = pytest.importorskip("flax.struct", reason="flax is not installed")
chex = pytest.importorskip("chex", reason="chex is not installed")
penzai = pytest.importorskip("penzai.core.struct", reason="penzai is not installed")
Partial = jax.tree_util.Partial


@flax.dataclass
class FlaxData:
    b: Any
    a: Any
    name: Any = flax.field(pytree_node=False, default="n")


@chex.dataclass
class ChexMapping:
    b: Any
    a: Any


@chex.dataclass(kw_only=True)
class ChexChild(ChexMapping):
    c: Any = None


@penzai.pytree_dataclass
class PenzaiPair(penzai.Struct):
    b: Any
    name: Any = dataclasses.field(metadata={"pytree_node": False})
    a: Any


@penzai.pytree_dataclass
class PenzaiMade(penzai.Struct):
    a: Any
    b: Any

    def __init__(self, a: Any, b: Any):
        self.b = b
        self.a = a


def function(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


MAKE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "flax dataclass": FlaxData,
    "chex": lambda x, y, _: ChexMapping(a=x, b=y),
    "chex inherited": lambda x, y, _: ChexChild(a=x, b=y, c=x),
    "penzai": lambda x, y, name: PenzaiPair(x, name, y),
    "penzai with an __init__": lambda x, y, _: PenzaiMade(x, y),
    "partial": lambda x, y, _: Partial(function, x, k=y),
    "partial without names": lambda x, y, _: Partial(function, x, y),
    "partial of a partial": lambda x, y, _: Partial(functools.partial(function, 1), x, k=y),
}
KINDS = {"flax dataclass": "dataclass", "flax PyTreeNode": "dataclass"}


@pytest.mark.parametrize("form", MAKE)
def test_an_instance_is_read_and_made_by_its_fields(form: str) -> None:
    obj = MAKE[form](array(2), {"k": array(3)}, "n")
    assert _core.node_kind(obj) == KINDS.get(form, "declared")
    traces: list[Any] = []

    @partax.filter_jit
    def step(tree: Any) -> Any:
        traces.append(1)
        return jax.tree.map(lambda leaf: leaf + 1, tree)

    for scale in (1.0, 2.0, 3.0):
        tree = jax.tree.map(lambda leaf, scale=scale: leaf * scale, obj)
        found, expected = step(tree), jax.tree.map(lambda leaf: leaf + 1, tree)
        assert_exact(found, expected)
        assert list(getattr(found, "__dict__", ())) == list(getattr(expected, "__dict__", ()))
    assert len(traces) == 1
    assert fields.fallback(type(obj)) == ""


def test_attributes_beside_the_fields_are_what_the_library_makes_of_them() -> None:
    step = partax.filter_jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree))
    for obj in (ChexMapping(a=array(1), b=array(2)), PenzaiMade(array(1), array(2)), Partial(function, array(1))):
        step(obj)
        vars(obj)["extra"] = array(3)
        found, expected = step(obj), jax.tree.map(lambda leaf: leaf + 1, obj)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        assert list(vars(found)) == list(vars(expected))
        del vars(obj)["extra"]
        assert list(vars(step(obj))) == list(vars(jax.tree.map(lambda leaf: leaf, obj)))
