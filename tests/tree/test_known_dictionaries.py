"""Guards that the dictionary of a node is never taken for what it was: whatever changes it, and in whatever moment of
the change a call comes, the call sees what Python sees then."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax

nnx = pytest.importorskip("flax.nnx", reason="Flax is not here")
FrozenDict = pytest.importorskip("flax.core", reason="Flax is not here").FrozenDict


class Module(eqx.Module):
    a: Any
    b: Any
    n: Any = eqx.field(static=True)


@jax.tree_util.register_dataclass
@dataclass
class Plain:
    """Without a `__setattr__`, so that the interpreter sets its attributes."""

    a: Any
    b: Any


class Careful:
    """With one, and registered by functions; its fields are declared."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a = a
        self.b = b

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _make_careful(_: None, children: Any) -> Careful:
    made = object.__new__(Careful)
    made.a, made.b = children
    return made


jax.tree_util.register_pytree_node(Careful, lambda c: ((c.a, c.b), None), _make_careful)
partax.register_fields(Careful, data=("a", "b"))


class Pair(nnx.Pytree):
    def __init__(self, a: Any, b: Any) -> None:
        self.a = nnx.data(a)
        self.b = nnx.data(b)


class Holder:
    """Has the dictionary of another object, and the interpreter sets its attributes."""

    def __init__(self, of: dict[str, Any]) -> None:
        self.__dict__ = of


def set_a(holder: Any, value: Any) -> None:
    holder.a = value


for n in range(100):  # CPython has ways of its own to set an attribute that is set often
    set_a(Holder({"a": 0}), n)

Entries = Callable[[Any], dict[str, Any]]
MADE: dict[str, tuple[Callable[[Any, Any], Any], Entries]] = {
    "module": (lambda a, b: Module(a, b, 3), vars),
    "dataclass": (Plain, vars),
    "declared": (Careful, vars),
    "nnx.Pytree": (Pair, vars),
    "nnx.State": (lambda a, b: nnx.State({"a": a, "b": b}), lambda state: state._mapping),
    "FrozenDict": (lambda a, b: FrozenDict(a=a, b=b), lambda frozen: frozen._dict),
    "dict": (lambda a, b: {"a": a, "b": b}, lambda mapping: mapping),
}

CHANGES: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "an item": lambda entries, value: entries.__setitem__("a", value),
    "update": lambda entries, value: entries.update(a=value),
    "in place or": lambda entries, value: entries.__ior__({"a": value}),
    "deleted and set": lambda entries, value: (entries.pop("a"), entries.setdefault("a", value)),
    "cleared": lambda entries, value: (
        before := dict(entries),
        entries.clear(),
        entries.update({**before, "a": value}),
        before.clear(),
    ),
    "the last item": lambda entries, value: (
        before := list(entries.items()),
        [entries.popitem() for _ in before],
        entries.update({**dict(before), "a": value}),
        before.clear(),
    ),
    "an attribute": lambda entries, value: set_a(Holder(entries), value),
    "an attribute, set generically": lambda entries, value: object.__setattr__(Holder(entries), "a", value),
    "an attribute, deleted": lambda entries, value: (delattr(Holder(entries), "a"), entries.setdefault("a", value)),
}


def seen_by_python(entries: dict[str, Any]) -> list[float]:
    return [float(entries[name][0]) for name in ("a", "b")]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("family", MADE)
def test_a_change_between_calls_is_seen(family: str, change: str) -> None:
    make, entries_of = MADE[family]
    read = partax.filter_jit(lambda trees: [[x * 1 for x in jax.tree.leaves(tree)] for tree in trees])
    trees = [make(jnp.full(1, float(i)), jnp.full(1, -float(i))) for i in range(3)]

    def expect() -> None:
        for _ in range(3):
            found = [[float(x[0]) for x in leaves] for leaves in read(trees)]
            assert found == [seen_by_python(entries_of(tree)) for tree in trees]

    expect()
    for n in range(3):
        CHANGES[change](entries_of(trees[1]), jnp.full(1, 10.0 + n))
        expect()
    CHANGES[change](entries_of(trees[2]), entries_of(trees[0])["a"])  # one that another node had
    expect()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("family", MADE)
def test_a_call_in_the_midst_of_a_change_sees_what_python_sees(family: str, change: str) -> None:
    make, entries_of = MADE[family]
    read = partax.filter_jit(lambda tree: [x * 1 for x in jax.tree.leaves(tree)])
    tree = make(jnp.full(1, 0.0), jnp.full(1, -1.0))
    met: list[bool] = []

    def call(_: Any) -> None:
        entries = entries_of(tree)
        if set(entries) >= {
            "a",
            "b",
        }:  # else it is another structure, whose trace would be met in the midst of this one
            met.append([float(x[0]) for x in read(tree)] == seen_by_python(entries))

    for n in range(3):
        for _ in range(3):
            read(tree)
        dying = weakref.ref(entries_of(tree)["a"], call)
        CHANGES[change](entries_of(tree), jnp.full(1, 10.0 + n))
        gc.collect()
        assert dying() is None
        assert [float(x[0]) for x in read(tree)] == seen_by_python(entries_of(tree))
    assert all(met) and (len(met) == 3 or "delete" in change or "clear" in change or "last" in change)


@pytest.mark.parametrize("family", [name for name in MADE if name not in ("nnx.State", "FrozenDict", "dict")])
def test_a_call_in_the_midst_of_setting_an_attribute_sees_what_python_sees(family: str) -> None:
    make, _ = MADE[family]
    read = partax.filter_jit(lambda tree: [x * 1 for x in jax.tree.leaves(tree)])
    tree = make(jnp.full(1, 0.0), jnp.full(1, -1.0))
    set_attribute = object.__setattr__ if family == "module" else setattr
    met: list[bool] = []

    def call(_: Any) -> None:
        met.append([float(x[0]) for x in read(tree)] == seen_by_python(vars(tree)))

    def often(count: int) -> None:
        for n in range(count):
            dying = weakref.ref(tree.a, call)
            read(tree)
            if family == "module":
                set_attribute(tree, "a", jnp.full(1, float(n)))
            else:
                tree.a = jnp.full(1, float(n))
            assert dying() is None

    often(60)
    assert met == 60 * [True]


@pytest.mark.parametrize("family", MADE)
def test_a_dictionary_at_the_place_of_another_is_read(family: str) -> None:
    make, _ = MADE[family]
    read = partax.filter_jit(lambda tree: [x * 1 for x in jax.tree.leaves(tree)])
    arrays = [(jnp.full(1, float(n)), jnp.full(1, -float(n))) for n in range(20)]
    for n in range(20):
        tree = None  # it is freed
        tree = make(*arrays[n])
        for _ in range(2):
            assert [float(x[0]) for x in read(tree)] == [n, -n]
    if family in ("dataclass", "declared"):
        for n in range(20):
            tree.__dict__ = {"a": jnp.full(1, float(n)), "b": jnp.full(1, 1.0)}
            for _ in range(2):
                assert [float(x[0]) for x in read(tree)] == [n, 1.0]


@pytest.mark.parametrize("family", MADE)
def test_a_dictionary_that_another_function_knows_at_that_place_is_read(family: str) -> None:
    make, _ = MADE[family]
    functions = [partax.filter_jit(lambda tree, i=i: [x * 1 for x in jax.tree.leaves(tree)]) for i in range(3)]
    arrays = [(jnp.full(1, float(n)), jnp.full(1, -float(n))) for n in range(30)]
    for n in range(30):
        tree = None  # it is freed
        tree = make(*arrays[n])
        for read in (functions[n % 3], functions[(n + 1) % 3]):
            for _ in range(3):
                assert [float(x[0]) for x in read(tree)] == [n, -n]


@pytest.mark.parametrize("family", MADE)
def test_what_is_known_of_a_dictionary_keeps_nothing_alive(family: str) -> None:
    make, entries_of = MADE[family]
    read = partax.filter_jit(lambda tree: [x * 1 for x in jax.tree.leaves(tree)])
    tree = make(jnp.full(1, 0.0), jnp.full(1, -1.0))
    for _ in range(3):
        read(tree)
    array = weakref.ref(entries_of(tree)["a"])
    del tree
    gc.collect()
    assert array() is None


WITHOUT_A_WATCHER = """
import ctypes

add = ctypes.pythonapi.PyDict_AddWatcher
add.argtypes = [ctypes.c_void_p]
try:
    while add(ctypes.cast(ctypes.pythonapi.PyDict_New, ctypes.c_void_p)) >= 0:  # which is never called
        pass
except RuntimeError as error:
    print(error)

import jax.numpy as jnp
from flax import nnx

import partax

linear = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
read = partax.filter_jit(lambda linear: (linear.kernel._var_metadata["mark"], linear.bias[...] * 1))
for mark in range(3):
    linear.kernel.set_metadata("mark", mark)
    linear.bias = nnx.Param(jnp.asarray(mark + 0.5))
    for _ in range(3):
        print(*(float(x) for x in read(linear)))
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="this Python has no watchers of dictionaries")
def test_nothing_is_known_where_others_have_all_watchers() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_A_WATCHER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told, *calls = done.stdout.splitlines()
    assert "watcher" in told
    assert calls == [f"{float(mark)} {mark + 0.5}" for mark in range(3) for _ in range(3)]
