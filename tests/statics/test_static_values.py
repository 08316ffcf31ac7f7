"""Guards the rule that two static values are one only if a traced program cannot tell them apart:
type-exact, floats by bits, mutable containers by value; a TypeError for what cannot be static."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partax import _core
from trees import Bag, Cell, Colour, Config, Layer, Pair, array, endless_values


@dataclasses.dataclass(frozen=True)
class OtherConfig:
    width: Any = 3
    name: Any = "config"


class Number(enum.IntEnum):
    ONE = 1


NAN = float("nan")
DISTINCT = [
    *(1, True, 1.0, 1 + 0j, "1", b"1", np.int64(1), np.int32(1), np.float32(1), np.bool_(True)),
    *(0, False, 0.0, -0.0, 0j, complex(-0.0, 0.0), complex(0.0, -0.0), None, "", b"", bytearray()),
    *(NAN, -NAN, complex(NAN, 0.0), complex(0.0, NAN)),
    *(Number.ONE, Colour.RED, Colour.BLUE, int, float, bool, len, print),
    *((), [], set(), frozenset(), {}, OrderedDict()),
    *((1,), (True,), (1.0,), [1], {1}, frozenset({1}), frozenset({True}), frozenset({1.0})),
    *((0.0,), (-0.0,), ((1, (0.0,)),), ((1, (-0.0,)),), (NAN, 1), (1, NAN), (np.int64(1),)),
    *({"a": 1}, {"a": True}, {"a": 1, "b": 2}, {1: "a"}, {True: "a"}, bytearray(b"1")),
    *(Pair(1, 2), (1, 2), [1, 2], Config(1), Config(True), Config(1.0), OtherConfig(1)),
    *(Config((0.0,)), Config((-0.0,)), Config([1]), Config([True])),
]


@pytest.mark.parametrize("i", range(len(DISTINCT)))
def test_static_values_that_a_program_can_tell_apart_are_different(i: int) -> None:
    for j, other in enumerate(DISTINCT):
        assert _core.static_equal(DISTINCT[i], other) is (i == j), (DISTINCT[i], other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: 10**30,
        lambda: float("1.5"),
        lambda: float("nan"),
        lambda: complex("nan-0j"),
        lambda: "".join(["a", "b"]),
        lambda: (1, (2.0, "x", None), float("nan")),
        lambda: frozenset({1, "a", (2.5, float("nan"))}),
        lambda: [1, {"k": {2, 3}}, bytearray(b"x")],
        lambda: Config((1, -0.0), [float("nan")]),
        lambda: Pair(Config(), "x"),
        lambda: jax.ShapeDtypeStruct((2,), jnp.float32),
        lambda: np.dtype("float32"),
        lambda: jax.sharding.PartitionSpec("x", None),
        lambda: slice,
        lambda: range(3),
    ],
)
def test_fresh_equal_values_are_equal_and_hash_alike(make: Any) -> None:
    assert _core.static_equal(make(), make()) is True
    assert _core.static_hash(make()) == _core.static_hash(make())
    assert type(_core.static_hash(make())) is int


def test_opaque_objects_and_functions_that_hold_arrays_are_compared_by_identity() -> None:
    for make in (object, lambda: functools.partial(len, array(2))):
        first, second = make(), make()
        assert _core.static_equal(first, first)
        assert not _core.static_equal(first, second)
        assert _core.static_hash(first) == _core.static_hash(first)


class Loud:
    """A value whose comparison or hash goes wrong."""

    def __init__(self, eq: Any = True, hash_: Any = 1) -> None:
        self.eq, self.hash = eq, hash_

    def __eq__(self, other: object) -> Any:
        if isinstance(self.eq, Exception):
            raise self.eq
        return self.eq

    def __hash__(self) -> int:
        if isinstance(self.hash, Exception):
            raise self.hash
        return self.hash


def test_other_objects_need_the_same_hash_and_a_true_equality() -> None:
    assert _core.static_equal(Loud(), Loud())
    assert not _core.static_equal(Loud(eq=False), Loud(eq=False))
    assert not _core.static_equal(Loud(hash_=1), Loud(hash_=2))
    assert not _core.static_equal(Loud(eq=NotImplemented), Loud(eq=NotImplemented))


@pytest.mark.parametrize("eq", [np.array([True, True]), RuntimeError("no")], ids=["array", "raises"])
def test_an_equality_that_gives_no_bool_is_a_type_error(eq: Any) -> None:
    with pytest.raises(TypeError) as caught:
        _core.static_equal(Loud(eq), Loud(eq))
    assert "Loud" in str(caught.value)
    if isinstance(eq, Exception):
        assert caught.value.__cause__ is eq
    same = Loud(eq)
    assert _core.static_equal(same, same)


class NoHash:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoHash)

    __hash__ = None  # type: ignore[assignment]


REFUSED = {
    "no hash": (NoHash, "NoHash"),
    "raising hash": (lambda: Loud(hash_=RuntimeError("no hash today")), "Loud"),
    "jax array in a frozen dataclass": (lambda: Config(array(2)), "Array"),
    "numpy array in a frozen set": (lambda: Config((1, np.ones(2))), "ndarray"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_cannot_be_static_is_a_type_error_with_its_path(name: str) -> None:
    make, type_name = REFUSED[name]
    with pytest.raises(TypeError, match=type_name):
        _core.static_hash(make())
    tree = {"layers": [Layer(array(1)), Layer(array(1), rate=make())]}
    with pytest.raises(TypeError, match=type_name) as caught:
        _core.flatten(tree, root="model")
    assert "model['layers'][1].rate" in str(caught.value)
    if name == "raising hash":
        assert str(caught.value.__cause__) == "no hash today"


def test_an_array_in_a_static_field_is_a_type_error_with_its_path() -> None:
    tree = (Cell(1, mode=np.ones(2)),)
    with pytest.raises(TypeError, match="ndarray") as caught:
        _core.flatten(tree, root="cells")
    assert "cells[0].mode" in str(caught.value)


def test_aux_data_without_a_hash_is_compared() -> None:
    _, spec = _core.flatten(Bag(1, label=NoHash()))
    assert spec.match(Bag(1, label=NoHash())) == []
    assert spec.match(Bag(1, label="x")) is None
    assert spec == _core.flatten(Bag(1, label=NoHash()))[1]


PLACES = {
    "static field": lambda value: Layer(1, scale=value),
    "aux data": lambda value: Bag(label=(1, value)),
    "inside a frozen dataclass": lambda value: [Config(value)],
}
CHANGES = {
    "list": (lambda: [1], lambda v: v.append(2)),
    "inner list": (lambda: {"a": [1]}, lambda v: v["a"].append(2)),
    "dict": (lambda: {"a": 1}, lambda v: v.update(a=True)),
    "set": (lambda: {1}, lambda v: v.add(2)),
    "bytearray": (lambda: bytearray(b"x"), lambda v: v.extend(b"y")),
}


@pytest.mark.parametrize("place", [*PLACES, "leaf"])
@pytest.mark.parametrize("kind", CHANGES)
def test_a_mutable_value_counts_as_it_was_when_the_spec_was_made(place: str, kind: str) -> None:
    make, change = CHANGES[kind]
    if place == "leaf" and kind not in ("set", "bytearray"):
        place = "aux data"  # as a leaf, the others are nodes
    value = make()
    tree = [value] if place == "leaf" else PLACES[place](value)
    _, spec = _core.flatten(tree)
    table = {spec: "before"}
    assert spec.match(tree) == []
    assert table.get(_core.flatten(tree)[1]) == "before"
    change(value)
    assert spec.match(tree) is None
    assert table.get(_core.flatten(tree)[1]) is None
    assert spec != _core.flatten(tree)[1]


def test_too_deep_and_self_containing_values_are_recursion_errors() -> None:
    deep, endless, loop = endless_values()
    for value in (deep, endless, loop, Config(endless)):
        with pytest.raises(RecursionError):
            _core.static_hash(value)
        with pytest.raises(RecursionError):
            _core.flatten([Cell(1, mode=value)])
    assert _core.static_equal([[1]], [[1]])
