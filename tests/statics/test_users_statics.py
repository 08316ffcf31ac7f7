"""Guards the promise that static values of a user's class are compared as the class says, refused with their path where
they cannot be, and that a result carries the very objects of its own call."""

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

# --- what comes back is this call's own


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any
    note: Any = dataclasses.field(default=None, compare=False)


class Equal:
    """Equal to all of its class, and each its own."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return 1

    def method(self) -> None: ...


class Module(eqx.Module):
    weight: Any
    static: Any = eqx.field(static=True)


def text() -> str:
    return "".join(["a ", "text"])


def function() -> Any:
    held = text()
    return lambda x: (x, held)[0]


# An equal value made anew; what in it must be the very object.
OWN: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "object": (Equal, lambda v: v),
    "function": (function, lambda v: v),
    "in a tuple": (lambda: (1, (Equal(),)), lambda v: v[1][0]),
    "tuple": (lambda: (1, (Equal(),)), lambda v: v),
    "in a frozen dataclass": (lambda: Frozen(Frozen(Equal())), lambda v: v.value.value),
    "frozen dataclass": (lambda: Frozen(1), lambda v: v),
    "in a field that does not compare": (lambda: Frozen(1, Equal()), lambda v: v.note),
    "in a partial": (lambda: functools.partial(max, Equal(), key=function()), lambda v: [v.args[0], v.keywords["key"]]),
    "partial": (lambda: functools.partial(max, Equal()), lambda v: v),
    "method": (lambda: Equal().method, lambda v: v.__self__),
    "list": (lambda: [1, [2]], lambda v: v),
    "dict": (lambda: {"a": {"b": 1}}, lambda v: [v, v["a"]]),
    "set": (lambda: {1, 2}, lambda v: v),
    "OrderedDict": (lambda: OrderedDict(b=1, a=2), lambda v: v),
}
# What carries a static value, and where it has it.
CARRIERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]] = {
    "Equinox module": (lambda static: Module(array(2), static), lambda tree: [tree.static]),
    "registered dataclass": (lambda static: Cell(array(2), mode=static), lambda tree: [tree.mode]),
    "registered node": (lambda static: Bag(array(2), label=static), lambda tree: [tree.label]),
    "nested": (
        lambda static: {"a": [Module(Cell(array(2), mode=static), static)]},
        lambda tree: [tree["a"][0].static, tree["a"][0].weight.mode],
    ),
}


def assert_own(find: Callable[[Any], list[Any]], inside: Callable[[Any], Any], given: Any, returned: Any) -> None:
    for mine, theirs in zip(find(given), find(returned), strict=True):
        ours, owners = inside(theirs), inside(mine)
        same = [a is b for a, b in zip(ours, owners, strict=True)] if type(ours) is list else []
        assert ours is owners or (same and all(same))
    assert jax.tree.structure(returned) == jax.tree.structure(given)


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("kind", OWN)
def test_a_result_carries_the_objects_of_its_own_call(kind: str, carrier: str) -> None:
    (make, inside), (carry, find) = OWN[kind], CARRIERS[carrier]
    step = filter_jit(lambda tree: tree)
    first, second = carry(make()), carry(make())
    for tree in (first, second, first, second, carry(make())):
        assert_own(find, inside, tree, step(tree))


# --- hostile objects


@pytest.mark.parametrize(
    "method", ["__getattr__", "__len__", "__iter__", "__bool__", "__repr__", "__call__", "__array__"]
)
@pytest.mark.parametrize("error", [KeyError, ValueError, AssertionError])
def test_an_object_whose_methods_raise(method: str, error: type[BaseException]) -> None:
    def raising(self: Any, *args: Any) -> Any:
        raise error("hostile")

    hostile, x = type("Hostile", (), {"n": 2.0, method: raising})(), array(2)
    for _ in range(2):
        assert_same(filter_jit(lambda x, held: x * held.n)(x, hostile), x * 2)
        assert_same(filter_jit(lambda x: x * hostile.n)(x), x * 2)
        assert_same(filter_jit(lambda x, held=hostile: x * held.n)(x), x * 2)


# --- a class that compares itself


@pytest.fixture
def scaled(traces: TraceCounter) -> Any:
    """A wrapper that reads an attribute of a static argument."""
    return filter_jit(lambda x, held: (traces.tick(), x * held.k)[1])


def comparing(base: type, truth: Callable[[bool], Any] = bool) -> type:
    """Objects of the class are equal if one attribute is, which it tells by any truth value: then all have one hash."""

    def eq(self: Any, other: Any) -> Any:
        return truth(type(self) is type(other) and self.k == other.k)

    hashed = lambda self: hash(self.k) if truth is bool else 1
    return type(f"Own_{base.__name__}", (base,), {"__eq__": eq, "__hash__": hashed})


BASES = [dict, OrderedDict, list, set, frozenset, tuple, int, str, float, complex, bytes, bytearray, object]
COMPARING: dict[str, type] = {
    **{f"a {base.__name__}": comparing(base) for base in BASES},
    **{f"truth {i}": comparing(object, truth) for i, truth in enumerate([int, np.bool_, jnp.asarray])},
}


@pytest.mark.parametrize("cls", COMPARING.values(), ids=COMPARING)
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
    class Plain(Frozen): ...

    @dataclasses.dataclass(frozen=True)
    class More(Frozen):
        more: float = 1.0

    own: Any = type("Own", (Frozen,), {"__eq__": Equal.__eq__, "__hash__": Equal.__hash__})
    step = filter_jit(lambda x, held: (traces.tick(), x * getattr(held, "more", 1.0))[1])
    for count, held in [
        *[(1, Plain(1)), (1, Plain(1, 2)), (2, Plain(2)), (3, own(1)), (3, own(2))],
        *[(4, More(1, 2, 3.0)), (4, More(1, 1, 3.0)), (5, More(1, 1, 4.0))],
    ]:
        assert_same(step(array(2), held), array(2) * getattr(held, "more", 1.0))
        assert traces.count == count
