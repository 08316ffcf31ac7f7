"""Guards that a call takes the same leaves, static values and objects of its arguments, wherever in them something is
no more what it was, and that nothing else is traced for it."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from trees import Pair

nnx = pytest.importorskip("flax.nnx", reason="Flax is not here")
FrozenDict = pytest.importorskip("flax.core", reason="Flax is not here").FrozenDict


class Module(eqx.Module):
    a: Any
    b: Any
    n: Any = eqx.field(static=True)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Plain:
    a: Any
    b: Any


class Block(nnx.Module):
    def __init__(self, inner: Any, name: str) -> None:
        self.inner = nnx.data(inner)
        self.weight = nnx.Param(array(), mark="metadata")
        self.scale = 0.25
        self.name = name


NUMBERS = itertools.count(1)


def array() -> jax.Array:
    return jnp.asarray(np.full(2, next(NUMBERS), np.float32))


def make() -> Any:
    """Nodes of many families, each within others and with something before and after it."""
    return [
        array(),
        {"x": array(), "y": {"s": "text", "z": [array(), 1.5, array()]}, "w": (array(), {"v": array()})},
        Pair(array(), Pair([array()], Module(array(), {"k": array(), "t": "text"}, "static"))),
        Module([array(), "leaf"], Module(array(), None, 2.5), "outer"),
        Plain({"p": array()}, [Plain(array(), "leaf")]),
        Block([Block(array(), "inner"), {"q": array()}], "outer"),
        nnx.List([Block(None, "first"), Block(array(), "second")]),
        nnx.State({"s": {"t": nnx.Param(array()), "u": array()}, "v": array()}),
        FrozenDict(f=array(), g={"h": array(), "i": "leaf"}),
        (array(), "leaf", "leaf", [array()]),
    ]


Find = Callable[[Any], tuple[Any, Any]]
# A list or dictionary in the tree, or the attributes of a node, and the index or key of one of its values.
PLACES: dict[str, Find] = {
    "first": lambda tree: (tree, 0),
    "dict": lambda tree: (tree[1], "x"),
    "static in a dict": lambda tree: (tree[1]["y"], "s"),
    "list in a dict": lambda tree: (tree[1]["y"]["z"], 2),
    "list in named tuples": lambda tree: (tree[2].right.left, 0),
    "dict in a module": lambda tree: (tree[2].right.right.b, "t"),
    "static field": lambda tree: (vars(tree[3]), "n"),
    "inner module": lambda tree: (vars(tree[3].b), "a"),
    "dataclass in a list": lambda tree: (vars(tree[4].b[0]), "a"),
    "attribute of nnx": lambda tree: (vars(tree[5]), "scale"),
    "metadata": lambda tree: (tree[5].weight._var_metadata, "mark"),
    "dict in nnx": lambda tree: (tree[5].inner[1], "q"),
    "nnx.List": lambda tree: (vars(tree[6][1]), "inner"),
    "State": lambda tree: (tree[7]._mapping, "v"),
    "dict in a State": lambda tree: (tree[7]._mapping["s"], "u"),
    "FrozenDict": lambda tree: (tree[8]._dict["g"], "i"),
    "last": lambda tree: (tree[9][3], 0),
}


def replacements(value: Any) -> list[tuple[str, Any, bool]]:
    """What to put instead of a value, and whether that is another program."""
    if isinstance(value, jax.Array):
        return [
            ("another array", value + 100, False),
            ("a NumPy array", np.full(2, 7.0, np.float32), False),
            ("a static value", "static", True),
            ("a node", [value], True),
        ]
    if isinstance(value, str):
        return [("an equal one", "".join(list(value)), False), ("another", value + "!", True)]
    return [("an equal one", float(str(value)), False), ("another", value + 1, True)]


def assert_unchanged(result: Any, tree: Any) -> None:
    """The same jax arrays, NumPy arrays as arrays of jax, and equal static values."""
    assert jax.tree.structure(result) == jax.tree.structure(tree)
    for found, leaf in zip(jax.tree.leaves(result), jax.tree.leaves(tree), strict=True):
        if isinstance(leaf, np.ndarray):
            assert isinstance(found, jax.Array) and found.tolist() == leaf.tolist()
        else:
            assert found is leaf or (not isinstance(leaf, jax.Array) and found == leaf)


@pytest.mark.parametrize("find", PLACES.values(), ids=PLACES)
def test_a_call_with_one_thing_replaced(find: Find, traces: Any) -> None:
    def arrays_of(tree: Any) -> list[Any]:
        return [x for x in jax.tree.leaves(tree) if isinstance(x, (jax.Array, np.ndarray))]

    f = partax.filter_jit(lambda tree: (traces.tick(), tree, jnp.stack(arrays_of(tree)) * 2)[1:])
    tree = make()
    container, key = find(tree)

    def check(times: int, expected: int, what: str) -> None:
        for _ in range(times):
            result, doubled = f(tree)
            assert_unchanged(result, tree)
            assert doubled.tolist() == (np.stack(arrays_of(tree)) * 2).tolist()
        assert traces.count == expected, what

    check(3, 1, "before")
    before = container[key]
    expected = 1
    for what, value, is_another_program in replacements(before):
        container[key] = value
        expected += is_another_program
        check(3, expected, what)
        container[key] = before
        check(2, expected, f"back from {what}")


def test_a_state_of_the_attributes_of_an_object() -> None:
    class Holder:
        def __init__(self) -> None:
            self.weight, self.bias = array(), array()

    holder = Holder()
    state = nnx.State({"attributes": vars(holder)})["attributes"]
    f = partax.filter_jit(lambda state: state["weight"] + state["bias"])
    for _ in range(20):
        holder.weight = array()
        for _ in range(3):
            assert f(state).tolist() == (np.asarray(holder.weight) + np.asarray(holder.bias)).tolist()
