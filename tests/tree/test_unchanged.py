"""Guards that a call takes the same leaves, static values and objects of its arguments, wherever in them something is
no more what it was, and that nothing else is traced for it."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
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
        nnx.State({"s": {"t": nnx.Param(array()), "u": array()}}),
        FrozenDict(f=array(), g={"h": array(), "i": "leaf"}),
        (array(), "leaf", "leaf", [array()]),
    ]


Setter = Callable[[Any], None]


def places(node: Any, path: str = "tree") -> Iterator[tuple[str, Any, Setter]]:
    """Every array and static value that can be replaced in place, without making its node anew."""
    inner: dict[str, tuple[Any, Setter | None]] = {}
    if isinstance(node, dict):
        inner = {f"[{key!r}]": (value, lambda new, key=key: node.__setitem__(key, new)) for key, value in node.items()}
    elif isinstance(node, list):
        inner = {f"[{i}]": (value, lambda new, i=i: node.__setitem__(i, new)) for i, value in enumerate(node)}
    elif isinstance(node, tuple):
        inner = {f"[{i}]": (value, None) for i, value in enumerate(node)}
    elif isinstance(node, nnx.Variable):
        setter = lambda new: object.__setattr__(node, "_raw_value", new)
        inner = {".value": (node._raw_value, setter), ".metadata": (node._var_metadata, None)}
    elif isinstance(node, (eqx.Module, Plain, nnx.Pytree)) and not isinstance(node, nnx.State):
        inner = {
            f".{name}": (value, lambda new, name=name: object.__setattr__(node, name, new))
            for name, value in vars(node).items()
            if not name.startswith("_pytree__") and name != "_length"
        }
    elif isinstance(node, nnx.State):
        inner = {"": (node._mapping, None)}
    elif isinstance(node, FrozenDict):
        inner = {"": (node._dict, None)}
    for name, (value, setter) in inner.items():
        if isinstance(value, (jax.Array, np.ndarray, str, float)):
            if setter is not None:
                yield path + name, value, setter
        else:
            yield from places(value, path + name)


def replacements(value: Any) -> list[tuple[str, Any, bool]]:
    """In the place of a value: what, and whether that is another program."""
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


def arrays_of(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if isinstance(x, (jax.Array, np.ndarray))]


PLACES = [path for path, _, _ in places(make())]


def assert_as_given(result: Any, tree: Any) -> None:
    """The same jax arrays at the same places, and equal values elsewhere."""
    found, given = ({path: value for path, value, _ in places(it)} for it in (result, tree))
    assert found.keys() == given.keys()
    for path, value in given.items():
        if isinstance(value, np.ndarray):
            assert isinstance(found[path], jax.Array), path
            assert found[path].tolist() == value.tolist(), path
        elif isinstance(value, jax.Array):
            assert found[path] is value, path
        else:
            assert (type(found[path]), found[path]) == (type(value), value), path


@pytest.mark.parametrize("path", PLACES)
def test_a_call_with_one_thing_replaced(path: str, traces: Any) -> None:
    f = partax.filter_jit(lambda tree: (traces.tick(), tree, [x * 2 for x in arrays_of(tree)])[1:])
    tree = make()

    def check(times: int, expected: int, what: str) -> None:
        for _ in range(times):
            back, doubled = f(tree)
            assert_as_given(back, tree)
            assert [x.tolist() for x in doubled] == [(x * 2).tolist() for x in arrays_of(tree)]
        assert traces.count == expected, what

    check(3, 1, "until all is known")
    before, setter = {name: (value, setter) for name, value, setter in places(tree)}[path]
    expected = 1
    for what, value, is_other in replacements(before):
        setter(value)
        expected += is_other
        check(3, expected, what)
        setter(before)
        check(2, expected, f"back from {what}")
