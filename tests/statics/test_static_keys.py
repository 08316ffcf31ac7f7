"""Static values are one key only if a traced program cannot distinguish them (design, section 4)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from conftest import TraceCounter
from partax import filter_jit
from reference import canonical
from static_values import IN_AUX, LEAVES
from trees import Bag, Cell, Config, Layer, Pair, Tray, array, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose


class Named:
    """Equal by value, and hashable."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


def layer_with(scale: Any) -> Layer:
    layer = Layer(array(2, 2))
    object.__setattr__(layer, "scale", scale)  # Equinox itself would warn about NumPy scalars
    return layer


# The places of a value in a call, and how to read it there. The first two are leaves of a pytree.
PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "argument": (lambda v: v, lambda t: t),
    "leaf": (lambda v: {"a": [v]}, lambda t: t["a"][0]),
    "module field": (layer_with, lambda t: t.scale),
    "dataclass field": (lambda v: Cell(array(2), mode=v), lambda t: t.mode),
    "registered node": (lambda v: Bag(array(2), label=v), lambda t: t.label),
    "node with keys": (lambda v: Tray(array(2), 1, label=v), lambda t: t.label),
    "tuple in aux": (lambda v: Bag(label=(1, (v, "x"))), lambda t: t.label[1][0]),
    "NamedTuple in aux": (lambda v: Bag(label=Pair(v, 1)), lambda t: t.label.left),
    "frozen dataclass in aux": (lambda v: Bag(label=Config(v)), lambda t: t.label.width),
    "frozen dataclass as leaf": (lambda v: [Config(Config(v))], lambda t: t[0].width.width),
}
NIGHTLY = {"leaf", "dataclass field", "node with keys", "NamedTuple in aux", "frozen dataclass in aux"}


@pytest.mark.parametrize(
    "place", [pytest.param(name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name in PLACES]
)
def test_values_share_a_trace_if_and_only_if_no_program_can_distinguish_them(traces: TraceCounter, place: str) -> None:
    build, read = PLACES[place]
    f = filter_jit(lambda tree: (traces.tick(), tree)[1])
    makers = (LEAVES if place in ("argument", "leaf") else IN_AUX).values()
    for make in (*makers, *makers):
        value = read(f(build(make())))
        assert canonical(value) == canonical(make()), f"{value!r} of {type(value)} for {make()!r}"
    assert traces.count == len(makers)


def test_objects_compare_by_type_hash_and_equality(traces: TraceCounter) -> None:
    f = filter_jit(lambda x, o: (traces.tick(), x)[1])
    for kind, name in 2 * [(Named, "a"), (Named, "b"), (type("Other", (Named,), {}), "a")]:
        f(array(2), kind(name))
    assert traces.count == 3


@dataclasses.dataclass
class OnlyEqual:
    """``==`` but no hash."""

    value: Any


@pytest.mark.parametrize("node", [Bag, Tray])
def test_aux_data_without_hash_is_compared(traces: TraceCounter, node: Any) -> None:
    f = filter_jit(lambda tree: (traces.tick(), array(1) * tree.label.value)[1])
    for value in (1, 2, 3, 1, 2, 3):
        assert_same(f(node(array(2), 1, label=OnlyEqual(value))), array(1) * value)
    assert traces.count == 3


MUTABLE: dict[str, tuple[Callable[[], Any], Callable[[Any], object], Callable[[Any], object]]] = {
    "list": (lambda: [1, 2], lambda v: v.append(3), lambda v: v.pop()),
    "dict": (lambda: {"a": 1}, lambda v: v.update(b=2), lambda v: v.pop("b")),
    "dict value": (lambda: {"a": 1}, lambda v: v.update(a=True), lambda v: v.update(a=1)),
    "set": (lambda: {1, 2}, lambda v: v.add(3), lambda v: v.discard(3)),
    "bytearray": (lambda: bytearray(b"ab"), lambda v: v.append(99), lambda v: v.pop()),
}
INSIDE: dict[str, Callable[[Any], Any]] = {
    "itself": lambda v: v,
    "list in a tuple": lambda v: (1, [v]),
    "dict": lambda v: {"k": v},
    "NamedTuple": lambda v: Pair(v, 0),
    "frozen dataclass": lambda v: Config(v),
}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("kind", MUTABLE)
def test_a_value_that_is_changed_in_place_is_a_new_key(traces: TraceCounter, kind: str, inside: str) -> None:
    make, change, undo = MUTABLE[kind]
    value = make()
    places = ("module field", "registered node", "dataclass field", "leaf")  # each combination has one
    place = places[([*MUTABLE].index(kind) + [*INSIDE].index(inside)) % 4]
    tree = PLACES[place][0](INSIDE[inside](value))
    f = filter_jit(lambda t: (traces.tick(), repr(value))[1])
    for act in (lambda v: None, change, lambda v: None, undo) * 2:
        act(value)
        assert f(tree) == repr(value)
    assert traces.count == 2


def test_a_hit_never_returns_a_value_that_was_mutated_since() -> None:
    f = filter_jit(lambda s, m: (s, m))
    value, model = {1, 2}, Bag(array(2), label=[1])
    f(value, model)
    value.add(3)
    model.label.append(2)
    assert f(value, model)[0] == {1, 2, 3}
    out, bag = f({1, 2}, Bag(array(2), label=[1]))
    assert out == {1, 2} and bag.label == [1]
    assert f({1, 2, 3}, Bag(array(2), label=[1, 2]))[0] == {1, 2, 3}
