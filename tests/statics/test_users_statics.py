"""Guards the promise that static values of a user's class are compared as the class says, and that a result carries the
very objects of its own call."""

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import TraceCounter
from partax import filter_jit
from trees import Bag, Cell, Pair, array, assert_same


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any
    note: Any = dataclasses.field(default=None, compare=False)


class Equal:
    """Equal to all others of its class."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return 1

    def method(self) -> None: ...


class Module(eqx.Module):
    weight: Any
    static: Any = eqx.field(static=True)


def function() -> Any:
    text = "".join(["a ", "text"])
    return lambda x: (x, text)[0]


# Makes an equal value, and lists the objects in it that must be those of the call.
OWN: dict[str, tuple[Callable[[], Any], Callable[[Any], list[Any]]]] = {
    "object": (Equal, lambda v: [v]),
    "function": (function, lambda v: [v]),
    "tuple": (lambda: (1, (Equal(),)), lambda v: [v, v[1][0]]),
    "frozen dataclass": (lambda: Frozen(Frozen(Equal())), lambda v: [v, v.value.value]),
    "field that does not compare": (lambda: Frozen(1, Equal()), lambda v: [v.note]),
    "partial": (
        lambda: functools.partial(max, Equal(), key=function()),
        lambda v: [v, v.args[0], v.keywords["key"]],
    ),
    "method": (lambda: Equal().method, lambda v: [v.__self__]),
    "list": (lambda: [1, [2]], lambda v: [v]),
    "dict": (lambda: {"a": {"b": 1}}, lambda v: [v, v["a"]]),
    "set": (lambda: {1, 2}, lambda v: [v]),
    "OrderedDict": (lambda: OrderedDict(b=1, a=2), lambda v: [v]),
}
# What carries a static value, and where it has it.
CARRIERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]] = {
    "registered node": (lambda static: Bag(array(2), label=static), lambda tree: [tree.label]),
    "module and dataclass": (
        lambda static: {"a": [Module(Cell(array(2), mode=static), static)]},
        lambda tree: [tree["a"][0].static, tree["a"][0].weight.mode],
    ),
}


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("kind", OWN)
def test_a_result_carries_the_objects_of_its_own_call(kind: str, carrier: str) -> None:
    (make, list_objects), (carry, read) = OWN[kind], CARRIERS[carrier]
    step = filter_jit(lambda tree: tree)
    first, second = carry(make()), carry(make())
    for tree in (first, second, first, second, carry(make())):
        result = step(tree)
        for argument, returned in zip(read(tree), read(result), strict=True):
            pairs = zip(list_objects(argument), list_objects(returned), strict=True)
            assert all(a is b for a, b in pairs)
        assert jax.tree.structure(result) == jax.tree.structure(tree)


@pytest.mark.parametrize(
    "method", ["__getattr__", "__len__", "__iter__", "__bool__", "__repr__", "__call__", "__array__"]
)
def test_an_object_whose_methods_raise(method: str) -> None:
    def raising(self: Any, *args: Any) -> Any:
        raise KeyError("hostile")

    hostile, x = type("Hostile", (), {"n": 2.0, method: raising})(), array(2)
    for _ in range(2):
        assert_same(filter_jit(lambda x, static: x * static.n)(x, hostile), x * 2)
        assert_same(filter_jit(lambda x: x * hostile.n)(x), x * 2)
        assert_same(filter_jit(lambda x, static=hostile: x * static.n)(x), x * 2)


@pytest.fixture
def scaled(traces: TraceCounter) -> Any:
    """A wrapper that reads an attribute of a static argument."""
    return filter_jit(lambda x, static: (traces.tick(), x * static.k)[1])


def comparing(base: type, truth: Callable[[bool], Any] = bool) -> type:
    """A class whose objects are equal if one attribute is; equality has a truth value of any type."""

    def eq(self: Any, other: Any) -> Any:
        return truth(type(self) is type(other) and self.k == other.k)

    hashed = lambda self: hash(self.k) if truth is bool else 1
    return type(f"Own_{base.__name__}", (base,), {"__eq__": eq, "__hash__": hashed})


COMPARING: list[type] = [
    *map(comparing, [dict, OrderedDict, list, set, tuple, int, str, float, bytes, object]),
    *(comparing(object, truth) for truth in (int, np.bool_, jnp.asarray)),
]


@pytest.mark.parametrize("cls", COMPARING)
def test_a_class_with_its_own_equality_is_compared_by_it(cls: type, scaled: Any, traces: TraceCounter) -> None:
    def make(k: float, other: Any) -> Any:
        value = cls()
        value.k, value.other = k, other
        return value

    for k, other, count in [(2.0, [1], 1), (3.0, {}, 2), (2.0, 2, 2), (3.0, np.ones(2), 2), (2.0, {}, 2)]:
        assert_same(scaled(array(2), make(k, other)), array(2) * k)
        assert traces.count == count


@pytest.mark.parametrize("base", [tuple, list, dict, set, frozenset])
def test_a_subclass_of_a_container_without_equality_counts_by_content(
    base: type, scaled: Any, traces: TraceCounter
) -> None:
    cls = type("Plain", (base,), {})

    def make(k: float) -> Any:
        value = cls({"k": k} if base is dict else [k])
        value.k = k
        return value

    for k, count in [(2.0, 1), (3.0, 2), (2.0, 2), (3.0, 2), (True, 3)]:
        for _ in range(2):
            assert_same(scaled(array(2), make(k)), array(2) * float(k))
        assert traces.count == count


@pytest.mark.parametrize("inside", [lambda v: v, lambda v: (v,), lambda v: Frozen(v), lambda v: Pair(1, v)])
def test_a_field_that_does_not_compare_does_not_count(inside: Callable[[Any], Any], traces: TraceCounter) -> None:
    step = filter_jit(lambda tree: (traces.tick(), tree.weight + 1)[1])
    for note in ("a", "b", np.ones(2), {1, 2}, [1], object(), comparing(dict)):
        assert_same(step(Module(array(2), inside(Frozen(1, note)))), array(2) + 1)
    assert traces.count == 1
    step(Module(array(2), inside(Frozen(True))))
    assert traces.count == 2


def test_a_subclass_of_a_frozen_dataclass_has_its_own_rules(traces: TraceCounter) -> None:
    @dataclasses.dataclass(frozen=True)
    class More(Frozen):
        more: float = 1.0

    own: Any = type("Own", (Frozen,), {"__eq__": Equal.__eq__, "__hash__": Equal.__hash__})
    step = filter_jit(lambda x, static: (traces.tick(), x * getattr(static, "more", 1.0))[1])
    for count, static in [(1, own(1)), (1, own(2)), (2, More(1, 2, 3.0)), (2, More(1, 1, 3.0)), (3, More(1, 1, 4.0))]:
        assert_same(step(array(2), static), array(2) * getattr(static, "more", 1.0))
        assert traces.count == count
