"""Static values are one key only if a traced program cannot tell them apart (design, section 4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import pytest

from conftest import TraceCounter
from partax import _core, filter_jit
from reference import canonical
from static_values import IN_AUX, LEAVES
from trees import Bag, Cell, Config, Layer, Pair, Tray, array, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


class Named:
    """Equal by value, hashable: the last row but two of the table."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def method(self, x: jax.Array) -> jax.Array:
        return x + 1


def layer_with(scale: Any) -> Layer:
    layer = Layer(array(2, 2))
    object.__setattr__(layer, "scale", scale)  # Equinox itself would warn about NumPy scalars
    return layer


Place = tuple[Callable[[Any], Any], Callable[[Any], Any]]

# Where a value can stand in a call, and how to find it there again.
# The first two only suit leaves of a pytree.
LEAF_PLACES: dict[str, Place] = {
    "argument": (lambda v: v, lambda t: t),
    "leaf": (lambda v: {"a": [v]}, lambda t: t["a"][0]),
}
AUX_PLACES: dict[str, Place] = {
    "module field": (layer_with, lambda t: t.scale),
    "dataclass field": (lambda v: Cell(array(2), mode=v), lambda t: t.mode),
    "registered node": (lambda v: Bag(array(2), label=v), lambda t: t.label),
    "node with keys": (lambda v: Tray(array(2), 1, label=v), lambda t: t.label),
    "tuple in aux": (lambda v: Bag(label=(1, (v, "x"))), lambda t: t.label[1][0]),
    "NamedTuple in aux": (lambda v: Bag(label=Pair(v, 1)), lambda t: t.label.left),
    "frozen dataclass in aux": (lambda v: Bag(label=Config(v)), lambda t: t.label.width),
    "frozen dataclass as leaf": (lambda v: [Config(Config(v))], lambda t: t[0].width.width),
}
PLACES = LEAF_PLACES | AUX_PLACES
# By day those that differ in what reads them; by night all.
BY_DAY = {"argument", "module field", "registered node", "tuple in aux", "frozen dataclass as leaf"}


over_places = pytest.mark.parametrize(
    "place",
    [pytest.param(it, id=name, marks=[pytest.mark.nightly] * (name not in BY_DAY)) for name, it in PLACES.items()],
)


def check(traces: TraceCounter, place: Place, values: list[Callable[[], Any]], keys: int) -> None:
    """Calls with each value, twice over: each comes back exactly, with ``keys`` traces in all."""
    build, find = place

    @filter_jit
    def f(tree: Any) -> Any:
        traces.tick()
        return tree

    for _ in range(2):
        for make in values:
            got = find(f(build(make())))
            assert canonical(got) == canonical(make()), f"{got!r} of {type(got)} for {make()!r}"
    assert traces.count == keys


@over_places
def test_values_share_a_trace_where_no_program_can_tell_them_apart_and_only_there(
    traces: TraceCounter, place: Place
) -> None:
    values = [*(LEAVES if place in LEAF_PLACES.values() else IN_AUX).values()]
    check(traces, place, values, len(values))


# --- objects


def test_objects_compare_by_type_hash_and_equality(traces: TraceCounter) -> None:
    class Other(Named):
        pass

    f = filter_jit(lambda x, o: (traces.tick(), x)[1])
    for _ in range(2):
        for value in (Named("a"), Named("b"), Other("a")):
            f(array(2), value)
    assert traces.count == 3


class OnlyEqual:
    """``==`` but no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OnlyEqual) and self.value == other.value


@pytest.mark.parametrize("node", ["registered node", "node with keys"])
def test_aux_data_without_hash_is_compared(traces: TraceCounter, node: str) -> None:
    @filter_jit
    def f(tree: Any) -> Any:
        traces.tick()
        return array(1) * tree.label.value

    for _ in range(2):
        for value in (1, 2, 3):
            assert_same(f(PLACES[node][0](OnlyEqual(value))), array(1) * value)
    assert traces.count == 3


# --- mutable values

MUTABLE: dict[str, tuple[Callable[[], Any], Callable[[Any], object], Callable[[Any], object]]] = {
    "list": (lambda: [1, 2], lambda v: v.append(3), lambda v: v.pop()),
    "dict": (lambda: {"a": 1}, lambda v: v.update(b=2), lambda v: v.pop("b")),
    "dict value": (lambda: {"a": 1}, lambda v: v.update(a=True), lambda v: v.update(a=1)),
    "set": (lambda: {1, 2}, lambda v: v.add(3), lambda v: v.discard(3)),
    "bytearray": (lambda: bytearray(b"ab"), lambda v: v.append(99), lambda v: v.pop()),
}
INSIDE: dict[str, Callable[[Any], Any]] = {
    "itself": lambda v: v,
    "list": lambda v: [v],
    "tuple": lambda v: (1, (v,)),
    "dict": lambda v: {"k": v},
    "NamedTuple": lambda v: Pair(v, 0),
    "frozen dataclass": lambda v: Config(v),
}


def check_mutations(traces: TraceCounter, value: Any, call: Any, kind: str) -> None:
    _, change, undo = MUTABLE[kind]
    for _ in range(2):
        assert call() == repr(value)
        change(value)
        assert call() == repr(value)
        assert call() == repr(value)
        undo(value)
        assert call() == repr(value)
    assert traces.count == 2


@pytest.mark.parametrize("inside", INSIDE.values(), ids=INSIDE.keys())
@pytest.mark.parametrize("kind", MUTABLE)
@pytest.mark.parametrize("node", ["module field", "registered node", "dataclass field"])
def test_mutated_aux_data_is_a_new_key(traces: TraceCounter, kind: str, inside: Any, node: str) -> None:
    value = MUTABLE[kind][0]()
    tree = PLACES[node][0](inside(value))
    f = filter_jit(lambda t: (traces.tick(), repr(value))[1])
    check_mutations(traces, value, lambda: f(tree), kind)


@pytest.mark.parametrize("inside", ["itself", "frozen dataclass"])
@pytest.mark.parametrize("kind", ["set", "bytearray"])
def test_mutated_leaves_are_new_keys(traces: TraceCounter, kind: str, inside: str) -> None:
    value = MUTABLE[kind][0]()
    tree = [1, INSIDE[inside](value)]
    f = filter_jit(lambda t: (traces.tick(), repr(value))[1])
    check_mutations(traces, value, lambda: f(tree), kind)


def test_a_hit_never_returns_a_value_that_was_mutated_since(traces: TraceCounter) -> None:
    f = filter_jit(lambda s, m: (traces.tick(), s, m)[1:])
    value = {1, 2}
    model = Bag(array(2), label=[1])
    f(value, model)
    value.add(3)
    model.label.append(2)
    assert f(value, model)[0] == {1, 2, 3}
    out, bag = f({1, 2}, Bag(array(2), label=[1]))
    assert out == {1, 2} and bag.label == [1]
    assert f({1, 2, 3}, Bag(array(2), label=[1, 2]))[0] == {1, 2, 3}


@jax.tree_util.register_pytree_node_class
class Tagged:
    def __init__(self, tag: Any, *children: Any) -> None:
        self.tag, self.children = tag, children

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return self.children, self.tag

    @classmethod
    def tree_unflatten(cls, tag: Any, children: Any) -> Tagged:
        return cls(tag, *children)


@dataclasses.dataclass(frozen=True)
class Silent:
    value: Any

    def __repr__(self) -> str:
        return "silent"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, True, False),
        ((1, "a"), (True, "a"), False),
        (0.0, -0.0, False),
        (Silent(1), Silent(True), False),  # which tells nothing of it
        (Silent(1), Silent(1), True),
        (Named("a"), Named("a"), True),  # whose text is its address
        (Named("a"), Named("b"), False),
        ([Named("a")], [Named("a")], True),
    ],
    ids=["bool", "tuple", "zero", "silent", "silent, same", "own, same", "own", "own in a list"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_structures_are_compared_by_what_their_nodes_hold(one: Any, other: Any, same: bool, nested: bool) -> None:
    def structure(tag: Any) -> Any:
        return jax.tree.structure((0, {"k": [Tagged(tag, 1)]}) if nested else Tagged(tag))

    traces = TraceCounter()

    @filter_jit
    def f(x: Any, structure: Any) -> Any:
        traces.tick()
        return x

    try:
        for tag in (one, one, other, other):
            f(array(2), structure(tag))
    except TypeError as error:  # jax gives structures the hash of what they hold
        assert isinstance(one, list) and "cannot be hashed" in str(error)
    else:
        assert traces.count == (1 if same else 2)
    assert _core.static_equal(structure(one), structure(other)) is same
