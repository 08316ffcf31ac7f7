"""Guards the promise that partax.nnx.jit leaves any nnx graph as plain Python does, and as nnx.jit where that does."""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import partax.nnx
from nnx_graphs import described, is_object

EXAMPLES = int(os.environ.get("PARTAX_MACHINE_EXAMPLES", "12"))
STEPS = int(os.environ.get("PARTAX_MACHINE_STEPS", "10"))
NAMES = ("a", "b", "c")
STATICS = ("x", 7, ("y", 2), None)


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
    return [it for _, it in nnx.iter_graph(root, graph=True) if is_object(it)]


def picked(values: list[Any], number: int) -> Any:
    return values[number % len(values)]


Action = tuple[str, int, int, int]


def put(node: Node, name: str, *value: Any) -> None:
    """Anew: as data or static, whatever it was; with no value it goes."""
    if hasattr(node, name):
        delattr(node, name)
    for it in value:
        setattr(node, name, it)


def full(number: int, *shape: int) -> jax.Array:
    return jnp.full(shape, number, jnp.int32)


# What is done in place: to a node and its attribute, or to a Variable; `other` is any object, `second` any Variable.
ACTS: dict[str, Callable[[Any], Any]] = {
    "change": lambda it: it.variable.set_value(jax.tree.map(lambda x: x * 2 + 1, it.variable.get_value())),
    "reshape": lambda it: it.variable.set_value(full(it.j, it.k % 3)),
    "copy": lambda it: it.variable.set_value(it.second.get_value()),
    "new variable": lambda it: put(it.node, it.name, (nnx.Param, nnx.BatchStat, nnx.Cache)[it.j % 3](full(it.k))),
    "new number": lambda it: put(it.node, it.name, nnx.Param(it.k)),
    "new node": lambda it: put(it.node, it.name, Node()),
    "share": lambda it: put(it.node, it.name, it.other),
    "static": lambda it: put(it.node, it.name, STATICS[it.j % len(STATICS)]),
    "delete": lambda it: put(it.node, it.name),
    "mode": lambda it: setattr(it.node, "mode", ("train", "eval")[it.k % 2]),
    "array": lambda it: setattr(it.node, "array", it.node.array + it.k),
    "append": lambda it: it.node.items.append(it.other if it.j % 2 else nnx.Param(full(it.k))),
    "pop": lambda it: it.node.items.pop(it.k % len(it.node.items)) if len(it.node.items) > 1 else None,
    "table": lambda it: it.node.table.__setitem__(it.name, it.other),
    "plain": lambda it: (it.node.plain.append(it.node.plain[0] + it.k), it.node.plain[1].update(v=it.second)),
    "shrink": lambda it: it.node.plain.__delitem__(slice(2, None)),
    "swap": lambda it: (it.node.table.__setitem__("k", it.node.value), setattr(it.node, "value", it.was)),
}
# In graph mode nnx.jit loses metadata, and takes a new attribute that is an array for static.
LOST: dict[str, Callable[[Any], Any]] = {
    "metadata": lambda it: it.variable.set_metadata("tag", it.k),
    "new array": lambda it: put(it.node, it.name, full(it.k) * it.node.array),
}


def act(root: Node, action: Action) -> None:
    """Does one thing in place, on a graph of tracers or of arrays."""
    what, i, j, k = action
    objects = all_objects(root)
    variables = [it for it in objects if isinstance(it, nnx.Variable)]
    node = picked([it for it in objects if type(it) is Node], i)
    chosen = SimpleNamespace(node=node, other=picked(objects, j), name=NAMES[k % len(NAMES)], j=j, k=k)
    chosen.variable, chosen.second, chosen.was = picked(variables, i), picked(variables, j), node.table["k"]
    (ACTS | LOST)[what](chosen)


def actions(whats: list[str]) -> st.SearchStrategy[Action]:
    number = st.integers(0, 5)
    return st.tuples(st.sampled_from(whats), number, number, number)


def run(root: Node, program: tuple[Action, ...], returns: tuple[int, ...]) -> Any:
    for action in program:
        act(root, action)
    objects = all_objects(root)
    return [picked(objects, i) for i in returns], [Node()] * len(returns), sum(returns, start=root.array)


class Machine(RuleBasedStateMachine):
    """Three copies of one graph: for nnx.jit, for ours, and for plain Python."""

    @initialize()
    def begin(self) -> None:
        self.roots = [Node() for _ in range(3)]
        self.traces = [0, 0]
        self.follows = True  # whether nnx.jit has not gone astray
        self.last: tuple[Any, ...] | None = None
        self.functions = [
            nnx.jit(self.counted(0), static_argnames=("program", "returns")),
            partax.nnx.jit(self.counted(1)),
            run,
        ]

    def counted(self, i: int) -> Callable[..., Any]:
        def function(root: Node, program: tuple[Action, ...], returns: tuple[int, ...]) -> Any:
            self.traces[i] += 1
            return run(root, program, returns)

        return function

    def call(self, program: tuple[Action, ...], returns: tuple[int, ...]) -> None:
        which = range(0 if self.follows else 1, 3)
        results = {i: self.functions[i](self.roots[i], program=program, returns=returns) for i in which}
        told = {i: described(self.roots[i], results[i]) for i in which}
        assert told[1] == told[2]
        if self.follows:
            assert told[0] == told[2]
            assert self.traces[1] <= self.traces[0]
        objects = all_objects(self.roots[1])
        assert all(any(it is known for known in objects) for it in results[1][0])
        self.last = program, returns

    @rule(program=st.lists(actions([*ACTS]), max_size=4), returns=st.lists(st.integers(0, 9), max_size=2))
    def call_something(self, program: list[Action], returns: list[int]) -> None:
        self.call(tuple(program), tuple(returns))

    @precondition(lambda self: self.last is not None)
    @rule()
    def call_again(self) -> None:
        assert self.last is not None
        self.call(*self.last)

    @rule()
    def call_what_hits(self) -> None:
        self.call((("change", 1, 0, 0), ("array", 0, 0, 1)), (0,))
        before = self.traces[1]
        self.call((("change", 1, 0, 0), ("array", 0, 0, 1)), (0,))
        assert self.traces[1] == before

    @rule(action=actions([*ACTS]))
    def change_without_jit(self, action: Action) -> None:
        for root in self.roots:
            act(root, action)

    @rule(action=actions([*LOST]))
    def call_what_nnx_loses(self, action: Action) -> None:
        self.follows = False
        self.call((action,), ())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_machine() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize="PARTAX_MACHINE_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),  # to shrink takes minutes: each step traces
            print_blob=True,
        ),
    )
