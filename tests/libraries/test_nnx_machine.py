"""Guards the promise that partax.nnx.jit leaves any nnx graph as plain Python does, and as nnx.jit where that does."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import partax.nnx
from nnx_graphs import described, is_object

EXAMPLES = int(os.environ.get("PARTAX_MACHINE_EXAMPLES", "12"))
STEPS = int(os.environ.get("PARTAX_MACHINE_STEPS", "10"))
NAMES = ("a", "b", "c")
STATICS = ("x", 7, ("y", 2), None)
KINDS = (nnx.Param, nnx.BatchStat, nnx.Cache)


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
    found: list[Any] = []

    def walk(value: Any) -> None:
        if not is_object(value):
            leaves = jax.tree.leaves(value, is_leaf=is_object)
            for leaf in leaves if len(leaves) != 1 or leaves[0] is not value else ():
                walk(leaf)
        elif all(value is not it for it in found):
            found.append(value)
            if not isinstance(value, nnx.Variable):
                for name in sorted(set(vars(value)) - {"_pytree__state", "_pytree__nodes"}):
                    walk(vars(value)[name])

    walk(root)
    return found


def picked(values: list[Any], number: int) -> Any:
    return values[number % len(values)]


Action = tuple[str, int, int, int]


def act(root: Node, action: Action) -> Any:
    """Does one thing in place, on a graph of tracers or of arrays."""
    what, i, j, k = action
    objects = all_objects(root)
    variables = [it for it in objects if isinstance(it, nnx.Variable)]
    nodes = [it for it in objects if type(it) is Node]
    node, other, name = picked(nodes, i), picked(objects, j), NAMES[k % len(NAMES)]
    variable = picked(variables, i)
    match what:
        case "change":
            variable.set_value(jax.tree.map(lambda x: x * 2 + 1, variable.get_value()))
        case "reshape":
            variable.set_value(jnp.full((k % 3,), j, jnp.int32))
        case "copy":
            variable.set_value(picked(variables, j).get_value())
        case "new variable":
            setattr_as_data(node, name, KINDS[j % 3](jnp.full((), k, jnp.int32)))
        case "new number":
            setattr_as_data(node, name, nnx.Param(k))
        case "new node":
            setattr_as_data(node, name, Node())
        case "share":
            setattr_as_data(node, name, other)
        case "static":
            if hasattr(node, name):
                delattr(node, name)
            setattr(node, name, STATICS[j % len(STATICS)])
        case "delete":
            if hasattr(node, name):
                delattr(node, name)
        case "mode":
            node.mode = ("train", "eval")[k % 2]
        case "array":
            node.array = node.array + k
        case "append":
            node.items.append(other if j % 2 else nnx.Param(jnp.full((), k, jnp.int32)))
        case "pop":
            if len(node.items) > 1:
                node.items.pop(k % len(node.items))
        case "table":
            node.table[name] = other
        case "plain":
            node.plain.append(node.plain[0] + k)
            node.plain[1]["v"] = picked(variables, j)
        case "shrink":
            del node.plain[2:]
        case "swap":
            node.value, node.table["k"] = node.table["k"], node.value
        case "metadata":
            variable.set_metadata("tag", k)
        case "new array":
            setattr_as_data(node, name, jnp.full((), k, jnp.int32) * node.array)
    return None


def setattr_as_data(node: Node, name: str, value: Any) -> None:
    if hasattr(node, name):
        delattr(node, name)
    setattr(node, name, value)


WHATS = (
    *("change", "reshape", "copy", "new variable", "new number", "new node", "share", "static", "delete", "mode"),
    *("array", "append", "pop", "table", "plain", "shrink", "swap"),
)
# In graph mode nnx.jit loses metadata, and takes a new attribute that is an array for static.
WHATS_NNX_LOSES = ("metadata", "new array")


def actions(whats: tuple[str, ...]) -> st.SearchStrategy[Action]:
    number = st.integers(0, 5)
    return st.tuples(st.sampled_from(whats), number, number, number)


def run(root: Node, program: tuple[Action, ...], returns: tuple[int, ...]) -> Any:
    for action in program:
        act(root, action)
    objects = all_objects(root)
    results = [picked(objects, i) for i in returns]
    return results, [Node()] * len(returns), sum(returns, start=root.array)


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

    @rule(program=st.lists(actions(WHATS), max_size=4), returns=st.lists(st.integers(0, 9), max_size=2))
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

    @rule(action=actions(WHATS))
    def change_without_jit(self, action: Action) -> None:
        for root in self.roots:
            act(root, action)

    @rule(action=actions(WHATS_NNX_LOSES))
    def call_what_nnx_loses(self, action: Action) -> None:
        self.follows = False
        self.call((action,), ())


@pytest.mark.filterwarnings("ignore")
def test_machine() -> None:
    from hypothesis.stateful import run_state_machine_as_test

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
