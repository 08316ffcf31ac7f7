"""Guards the promise that partax.nnx.jit leaves any nnx graph as plain Python does, and as nnx.jit where that does."""

import os
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import partax.nnx
from nnx_graphs import described, is_object

GRAPHS = int(os.environ.get("PARTAX_MACHINE_EXAMPLES", "6"))


class Node(nnx.Module):
    """A module of which anything may become anything."""

    def __init__(self) -> None:
        self.value = nnx.Param(jnp.arange(2, dtype=jnp.int32))
        self.array = nnx.data(jnp.ones((), jnp.int32))
        self.items = nnx.List([nnx.Param(jnp.ones((), jnp.int32))])
        self.table = nnx.Dict(k=nnx.BatchStat(jnp.zeros((), jnp.int32)))
        self.plain = nnx.data([jnp.zeros((), jnp.int32), {"v": nnx.Cache(jnp.ones((), jnp.int32))}])
        self.mode = "train"


def all_objects(root: Any) -> list[Any]:
    """All nodes and Variables, in an order that depends on the graph alone."""
    return [value for _, value in nnx.iter_graph(root, graph=True) if is_object(value)]


def put(node: Node, name: str, *value: Any) -> None:
    """As data or static, whatever it was before; without a value it is deleted."""
    if hasattr(node, name):
        delattr(node, name)
    for one in value:
        setattr(node, name, one)


def full(number: int, *shape: int) -> jax.Array:
    return jnp.full(shape, number, jnp.int32)


# What is done in place: to a node and its attribute, or to a Variable; `other` is any object, `second` any Variable.
ACTS: dict[str, Callable[[Any], Any]] = {
    "change": lambda on: on.variable.set_value(jax.tree.map(lambda x: x * 2 + 1, on.variable.get_value())),
    "reshape": lambda on: on.variable.set_value(full(on.j, on.k % 3)),
    "copy": lambda on: on.variable.set_value(on.second.get_value()),
    "new variable": lambda on: put(on.node, on.name, (nnx.Param, nnx.BatchStat, nnx.Cache)[on.j % 3](full(on.k))),
    "new number": lambda on: put(on.node, on.name, nnx.Param(on.k)),
    "new node": lambda on: put(on.node, on.name, Node()),
    "share": lambda on: put(on.node, on.name, on.other),
    "static": lambda on: put(on.node, on.name, ("x", 7, ("y", 2), None)[on.j % 4]),
    "delete": lambda on: put(on.node, on.name),
    "mode": lambda on: setattr(on.node, "mode", ("train", "eval")[on.k % 2]),
    "array": lambda on: setattr(on.node, "array", on.node.array + on.k),
    "append": lambda on: on.node.items.append(on.other if on.j % 2 else nnx.Param(full(on.k))),
    "pop": lambda on: on.node.items.pop(on.k % len(on.node.items)) if len(on.node.items) > 1 else None,
    "table": lambda on: on.node.table.__setitem__(on.name, on.other),
    "plain": lambda on: (on.node.plain.append(on.node.plain[0] + on.k), on.node.plain[1].update(v=on.second)),
    "shrink": lambda on: on.node.plain.__delitem__(slice(2, None)),
    "swap": lambda on: (on.node.table.__setitem__("k", on.node.value), setattr(on.node, "value", on.entry)),
}
# In graph mode nnx.jit loses metadata, and takes a new attribute that is an array for static.
LOST: dict[str, Callable[[Any], Any]] = {
    "metadata": lambda on: on.variable.set_metadata("tag", on.k),
    "new array": lambda on: put(on.node, on.name, full(on.k) * on.node.array),
}
Action = tuple[str, int, int, int]


def act(root: Node, action: Action) -> None:
    """Does one thing in place, on a graph of tracers or of arrays."""
    name, i, j, k = action
    objects = all_objects(root)
    variables = [value for value in objects if isinstance(value, nnx.Variable)]
    nodes = [value for value in objects if type(value) is Node]
    on = SimpleNamespace(node=nodes[i % len(nodes)], other=objects[j % len(objects)], name="abc"[k % 3], j=j, k=k)
    on.variable, on.second, on.entry = variables[i % len(variables)], variables[j % len(variables)], on.node.table["k"]
    (ACTS | LOST)[name](on)


def run(root: Node, program: tuple[Action, ...], returns: tuple[int, ...]) -> Any:
    for action in program:
        act(root, action)
    objects = all_objects(root)
    returned = [objects[i % len(objects)] for i in returns]
    return returned, [Node()] * len(returns), sum(returns, start=root.array)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(GRAPHS))
def test_programs_of_changes(seed: int) -> None:
    """Three copies of one graph: for plain Python, for ours, and for nnx.jit as long as that loses nothing."""
    chance = random.Random(seed)
    roots, traces = [Node() for _ in range(3)], [0, 0, 0]

    def counted(i: int) -> Callable[..., Any]:
        def function(root: Node, program: tuple[Action, ...], returns: tuple[int, ...]) -> Any:
            traces[i] += 1
            return run(root, program, returns)

        return function

    functions = [run, partax.nnx.jit(counted(1)), nnx.jit(counted(2), static_argnames=("program", "returns"))]

    def call(program: tuple[Action, ...], returns: tuple[int, ...]) -> None:
        calls = zip(functions, roots, strict=True)
        results = [function(root, program=program, returns=returns) for function, root in calls]
        states = [described(root, result) for root, result in zip(roots, results, strict=True)]
        assert all(state == states[0] for state in states)
        objects = all_objects(roots[1])
        assert all(any(value is one for one in objects) for value in results[1][0])

    def random_action(names: list[str]) -> Action:
        return chance.choice(names), chance.randrange(6), chance.randrange(6), chance.randrange(6)

    for _ in range(8):
        program = tuple(random_action([*ACTS]) for _ in range(chance.randrange(5)))
        returns = tuple(chance.randrange(10) for _ in range(chance.randrange(3)))
        call(program, returns)
        call(program, returns)
        outside = random_action([*ACTS])
        for root in roots:
            act(root, outside)
        in_place = ("change", 1, 0, 0), ("array", 0, 0, 1)
        call(in_place, (0,))
        before = traces[1]
        call(in_place, (0,))
        assert traces[1] == before
    assert traces[1] <= traces[2]
    del roots[2], functions[2]
    for name in LOST:
        call((random_action([name]),), ())
