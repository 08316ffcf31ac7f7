"""Guards that objects of dataclasses, of the classes of flax.struct, chex, penzai, nnx and jax's Partial, and of users'
classes are read and made as their functions do it, without these being called; that the user's own code runs whenever
jax runs it; that a class which does something else is left to its functions; and that dictionaries hit by the rules of
jax whatever order their keys were inserted in: the values come in the order of the keys, and an OrderedDict's order is
part of its structure."""

import dataclasses
import functools
import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import partax
from library_trees import HAS_FLAX, PAIRS
from partax import _core
from partax._families import equinox as equinox_family
from reference import assert_exact
from trees import Bag, Pair, SlottedCell, add_one, array

if HAS_FLAX:
    from flax import nnx

Partial = jax.tree_util.Partial


def function(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


MAKE: dict[str, Callable[[Any, Any, Any], Any]] = PAIRS | {
    "partial without names": lambda x, y, _: Partial(function, x, y),
    "partial of a partial": lambda x, y, _: Partial(functools.partial(function, 1), x, k=y),
}


@pytest.mark.parametrize("form", MAKE)
def test_an_instance_is_read_and_made_by_its_fields(form: str, traces: Any) -> None:
    tree = MAKE[form](array(2), {"k": array(3)}, "n")
    assert _core.node_kind(tree) in ("declared", "dataclass", "entries")
    step = partax.filter_jit(lambda tree: (traces.tick(), add_one(tree))[1])
    for _ in range(3):
        found, tree = step(tree), add_one(tree)
        assert_exact(found, tree)
        assert list(getattr(found, "__dict__", ())) == list(getattr(tree, "__dict__", ()))
    assert traces.count == 1


MARKED: Any = {"static": True}
register = jax.tree_util.register_dataclass


@register
@dataclasses.dataclass
class Plain:
    b: Any
    kind: str = dataclasses.field(metadata=MARKED)
    a: Any


@register
@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    kind: str = dataclasses.field(default="x", metadata=MARKED)
    b: Any = 3


@register
@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    kind: str = dataclasses.field(metadata=MARKED, default="x")
    b: Any = None


@register
@dataclasses.dataclass
class Child(Plain):
    c: Any = None


MADE: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda x, y: Plain(x, "k", y),
    "frozen": lambda x, y: Frozen(x, "k", y),
    "slots": lambda x, y: Slotted(x, "k", y),
    "frozen with slots": lambda x, y: SlottedCell([x, y]),
    "inherited": lambda x, y: Child(x, "k", y, {"c": x}),
}


@pytest.mark.parametrize("form", MADE)
def test_all_fields_are_set_in_the_order_of_a_call(form: str) -> None:
    obj = MADE[form](array(2), array(3))
    assert _core.node_kind(obj) == "dataclass"
    copy = partax.combine(*partax.partition(obj, partax.is_array))
    assert copy is not obj
    assert all(a is b for a, b in zip(jax.tree.leaves(copy), jax.tree.leaves(obj), strict=True))
    step = partax.filter_jit(add_one)
    for found, expected in [(copy, jax.tree.map(lambda leaf: leaf, obj)), *((step(obj), add_one(obj)) for _ in "123")]:
        assert_exact(found, expected)
        assert list(getattr(found, "__dict__", ())) == list(getattr(expected, "__dict__", ()))


# Code of a user's that runs when an instance is made, by its name in the class or (`__call__`) in the metaclass.
RUNS: dict[str, Callable[[list[str]], Any]] = {
    "__init__": lambda log: lambda self, a: (log.append("ran"), object.__setattr__(self, "a", a))[1],
    "__new__": lambda log: lambda cls, *_, **__: (log.append("ran"), object.__new__(cls))[1],
    "__setattr__": lambda log: lambda self, n, v: (log.append("ran"), object.__setattr__(self, n, v))[1],
    "__call__": lambda log: lambda cls, *args, **named: (log.append("ran"), type.__call__(cls, *args, **named))[1],
    "__post_init__": lambda log: lambda self: log.append("ran"),
}


@pytest.mark.parametrize("name", RUNS)
def test_code_of_the_user_runs_as_in_jax(name: str) -> None:
    log: list[str] = []
    written = {name: RUNS[name](log)}
    meta = type("Meta", (type,), written if name == "__call__" else {})
    cls: Any = register(dataclasses.dataclass(meta("Made", (), {"__annotations__": {"a": Any}, **written})))
    obj = cls(array(2))
    parts = partax.partition(obj, partax.is_array)
    logs = []
    for make in (
        lambda: jax.tree.map(lambda leaf: leaf, obj),
        lambda: partax.combine(*parts),
    ):
        log.clear()
        assert vars(make()).keys() == vars(obj).keys()
        logs.append([*log])
    assert logs[0] and logs[1:] == [logs[0]]


class Marked(Pair):
    """A named tuple that can have attributes."""


def test_a_named_tuple_comes_back_as_the_same_object_if_it_cannot_have_attributes() -> None:
    step = partax.filter_jit(lambda trees: trees)
    plain, marked = Pair(array(2), 1), Marked(array(2), 1)
    marked.mark = 1  # type: ignore[attr-defined]
    for _ in range(3):
        same, made = step([plain, marked])
        assert same is plain
        assert type(made) is Marked and made.left is marked.left and not hasattr(made, "mark")


Patch = pytest.MonkeyPatch


def equinox_with_another_aux(patch: Patch) -> Any:
    """A module whose class has another registration than modules have today."""
    equinox_family._missing()  # of modules as they are
    register = jax.tree_util.register_pytree_with_keys

    def mark(flatten: Any) -> Any:
        return lambda node: (flatten(node)[0], ("mark", flatten(node)[1]))

    def register_marked(cls: Any, flatten_with_keys: Any, unflatten_func: Any, **_: Any) -> None:
        register(cls, mark(flatten_with_keys), lambda aux, children: unflatten_func(aux[1], children))

    patch.setattr(jax.tree_util, "register_pytree_with_keys", register_marked)

    class Layer(eqx.Module):
        weight: Any
        scale: float = eqx.field(static=True)

    return Layer(array(2), 2.0)


def pytree(**functions: Any) -> Any:
    """An object of a class of Flax's that has these functions."""

    def init(self: Any) -> None:
        self.a, self.b = nnx.data(array(1)), nnx.data(array(2))

    # Jax keeps it for ever, and without a module of its own it would count as a library's.
    return type("Newer", (nnx.Pytree,), {"__module__": __name__, "__init__": init, **functions})()


def reversed_flax(patch: Patch) -> Any:
    def flatten(self: Any) -> Any:
        children, aux = nnx.Pytree._pytree__flatten(self)
        return children[::-1], aux

    def unflatten(cls: Any, static: Any, children: Any) -> Any:
        return nnx.Pytree._pytree__unflatten.__func__(cls, static, children[::-1])

    return pytree(_pytree__flatten=flatten, _pytree__unflatten=classmethod(unflatten))


# What makes an object, and words of why it is left to its functions.
OTHERWISE: dict[str, Callable[[Patch], Any]] = {
    "Equinox, another aux": equinox_with_another_aux,
    "Flax, reversed": reversed_flax,
    "Flax, another class": lambda patch: pytree(_pytree__unflatten=type(pytree())._pytree__unflatten),
}


@pytest.mark.skipif(not HAS_FLAX, reason="Flax is not here")
@pytest.mark.parametrize("name", OTHERWISE)
def test_an_object_is_what_the_functions_of_its_class_make_of_it(name: str, monkeypatch: Patch, traces: Any) -> None:
    it = OTHERWISE[name](monkeypatch)
    again = lambda tree: jax.tree.map(lambda leaf: leaf, tree)
    expected = again(again(it))  # once for the function, and once for its result
    step = partax.filter_jit(lambda tree: (traces.tick(), tree)[1])
    for _ in range(2):
        found = step([it, Bag(1)])[0]
        assert_exact(found, expected)
        assert list(vars(found)) == list(vars(expected))
    assert traces.count == 1 or name == "Flax, another class"
    assert_exact(partax.combine(*partax.partition(it, partax.is_array)), again(it))


# ---- Dictionaries.

Items = list[tuple[Any, Any]]
FAMILIES: dict[str, Callable[[Items], Any]] = {
    "dict": dict,
    "defaultdict": lambda items: defaultdict(list, items),
    "OrderedDict": OrderedDict,
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("keys", [("a", "c", "b"), (10**9, 3, -(10**9)), ((1, "x"), (0, "y"), (1, "w"))], ids=str)
def test_every_order_of_insertion_hits_and_traces_as_in_jax(family: str, keys: tuple[Any, ...]) -> None:
    ours_saw: list[Any] = []  # the keys as a trace sees them
    jax_saw: list[Any] = []
    ours = partax.filter_jit(lambda tree: (ours_saw.append(list(tree)), [(key, tree[key] + 1) for key in tree])[1])
    jitted = jax.jit(lambda tree: (jax_saw.append(list(tree)), [tree[key] + 1 for key in tree])[1])
    values = dict(zip(keys, (array(2), array(2, start=5), array(2, start=9)), strict=True))
    for order in 2 * list(itertools.permutations(keys)):
        tree = FAMILIES[family]([(key, values[key]) for key in order])
        found, expected = ours(tree), jitted(tree)
        assert [key for key, _ in found] == list(jax.tree.map(lambda x: x, tree))
        for (key, value), other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(value, values[key] + 1)
            np.testing.assert_array_equal(value, other)
    assert ours_saw == jax_saw


def test_an_ordered_dict_that_was_reordered_is_another_structure() -> None:
    ours = partax.filter_jit(lambda tree: tuple(tree))
    tree = OrderedDict(a=array(1), b=array(2))
    assert ours(tree) == ("a", "b")
    tree.move_to_end("a")  # its dictionary keeps the old order
    assert ours(tree) == ("b", "a")
    tree.move_to_end("a", last=False)
    assert ours(tree) == ("a", "b")


def test_the_factory_of_a_defaultdict_is_static() -> None:
    traces: list[Any] = []
    f = partax.filter_jit(lambda tree: (traces.append(tree.default_factory), tree["a"])[1])
    for factory in (list, list, dict, None, None, list):
        f(defaultdict(factory, a=array(1)))
    assert traces == [list, dict, None]
