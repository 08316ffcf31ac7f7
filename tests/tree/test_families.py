"""Guards that the classes of flax.struct, chex, penzai and jax's Partial, and those of users, are what their functions
make of them, without these being called, and that one which does something else is left to its functions."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
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


class FlaxNode(flax.PyTreeNode):
    b: Any
    a: Any
    name: Any = flax.field(pytree_node=False, default="n")


@chex.dataclass
class ChexMapping:
    b: Any
    a: Any


@chex.dataclass(frozen=True, mappable_dataclass=False)
class ChexFrozen:
    b: Any
    a: Any = 3


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
    "flax PyTreeNode": FlaxNode,
    "chex": lambda x, y, _: ChexMapping(a=x, b=y),
    "chex frozen": lambda x, y, _: ChexFrozen(a=x, b=y),
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


def test_a_chex_class_that_gets_a_post_init_later_is_left_to_its_functions() -> None:
    @chex.dataclass
    class Post:
        b: Any
        a: Any

    obj = Post(a=array(1), b=array(2))
    step = partax.filter_jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree))
    step(obj)
    step(obj)
    calls: list[Any] = []
    Post.__post_init__ = lambda self: calls.append(self.a)
    np.testing.assert_array_equal(step(obj).a, array(1) + 1)
    assert len(calls) == 1
    Post.other = 3
    step(obj)
    assert len(calls) == 2
    del Post.__post_init__
    assert list(vars(step(obj))) == ["b", "a"]
    assert len(calls) == 2


def test_a_penzai_struct_with_functions_of_its_own_is_left_to_them() -> None:
    @penzai.pytree_dataclass
    class Own(penzai.Struct):
        a: Any

        def tree_flatten(self) -> Any:  # type: ignore[override]
            return [self.a, 3.0], None

        def tree_flatten_with_keys(self) -> Any:  # type: ignore[override]
            return [("a", self.a), ("more", 3.0)], None

        @classmethod
        def tree_unflatten(cls, aux_data: Any, children: Any) -> Any:  # type: ignore[override]
            return cls.from_attributes(a=children[0])

    obj = Own(array(1))
    assert _core.node_kind(obj) == "registered"
    np.testing.assert_array_equal(partax.filter_jit(lambda tree: tree)(obj).a, array(1))


def test_a_library_that_does_something_else_is_told_of_and_left_to_its_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from chex._src import dataclass as chex_module

    real = chex_module._dataclass_unflatten
    monkeypatch.setattr(
        chex_module,
        "_dataclass_unflatten",
        lambda cls, keys, values: vars(made := real(cls, keys, values)).update(version=2) or made,
    )

    @chex.dataclass
    class Newer:
        a: Any

    obj = Newer(a=array(1))
    f = partax.filter_jit(lambda tree: tree)
    assert list(vars(f(obj))) == ["a", "version"]
    reason = "unflattening sets the attributes ('a', 'version')"
    assert [(node.type, node.count, node.because) for node in f.report().slow_nodes] == [("Newer", 1, reason)]
    assert re.search(
        rf"Newer x 1 flattened by a Python function: \S+ us a call; {re.escape(reason)}\n?", str(f.report())
    )
    assert json.loads(f.report().to_json())["slow_nodes"][0]["because"] == reason


def test_an_object_that_is_otherwise_than_declared_of_its_class_is_told_of() -> None:
    f = partax.filter_jit(lambda tree: tree)
    usual, unusual = ChexMapping(a=array(1), b=array(1)), ChexMapping(a=array(1), b=array(1))
    vars(unusual)["more"] = 1
    f([usual, unusual])
    reason = "an object is otherwise than is known of its class"
    assert [(node.type, node.count, node.because) for node in f.report().slow_nodes] == [("ChexMapping", 1, reason)]
