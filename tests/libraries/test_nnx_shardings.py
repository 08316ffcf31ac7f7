"""Guards the promise that shardings mean to partax.nnx.jit what they mean to nnx.jit, and are refused where it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from flax.nnx import extract
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import partax.nnx
from meshes import mesh_of

JITS: list[Any] = [nnx.jit, partax.nnx.jit]


@pytest.fixture
def mesh(devices: list[Any]) -> Mesh:
    return mesh_of(devices[:2])


@pytest.fixture
def filters(split: NamedSharding, everywhere: NamedSharding) -> dict[Any, NamedSharding]:
    return {nnx.PathContains("kernel"): split, ...: everywhere}


def linear() -> nnx.Linear:
    return nnx.Linear(4, 4, rngs=nnx.Rngs(0))


def shardings(tree: Any) -> list[Any]:
    """The partition of each Variable, in order."""
    variables = [it for _, it in nnx.iter_graph(tree) if isinstance(it, nnx.Variable)]
    return [getattr(it.get_raw_value().sharding, "spec", None) for it in variables]


def same_of_both(run: Callable[[Any], Any]) -> None:
    """Runs with the one jit and with the other: the shardings are the same, and some are over the mesh."""
    theirs, ours = (shardings(run(jit)) for jit in JITS)
    assert ours == theirs
    assert PartitionSpec("d") in ours


WHERE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "the whole": (lambda it: it, lambda make: make()),
    "a tuple": (lambda it: (it, it), lambda make: (make(), make())),
    "a list in a dictionary": (lambda it: {"a": [it]}, lambda make: {"a": [make()]}),
}


MODES = {
    "filters": {"graph": True, "graph_updates": True},
    "a prefix of a graph": {"graph": True, "graph_updates": False},
    "a prefix of a tree": {"graph": False, "graph_updates": False},
}


def grow(given: Any) -> None:
    for it in jax.tree.leaves(given, is_leaf=lambda it: isinstance(it, nnx.Variable)):
        it.set_value(it.get_value() + 1)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("side", ["argument", "result"])
def test_what_nnx_takes_may_stand_anywhere_in_a_prefix(
    where: str, kind: str, side: str, filters: dict[Any, Any]
) -> None:
    (spread, tree), options = WHERE[where], MODES[kind]
    state = nnx.StateSharding(filters)
    prefix = spread(state) if kind == "filters" else nnx.prefix(tree(linear), filters, graph=options["graph"])

    def run(jit: Any) -> Any:
        if side == "result":
            return jit(lambda: tree(linear), out_shardings=prefix, **options)()
        given = tree(linear)
        jit(grow, in_shardings=(prefix,), **options)(given)
        return given

    same_of_both(run)


def test_a_module_may_be_returned_twice_in_graph_mode(filters: dict[Any, Any]) -> None:
    prefix = nnx.prefix((net := linear(), net), filters, graph=True)

    def run(jit: Any) -> Any:
        def make() -> Any:
            net = linear()
            return net, net

        first, second = jit(make, out_shardings=prefix, graph=True, graph_updates=False)()
        assert first is second
        return first

    same_of_both(run)


@pytest.mark.parametrize("graph_updates", [False, True])
def test_one_variable_has_one_sharding(graph_updates: bool, split: NamedSharding, everywhere: NamedSharding) -> None:
    variable, net = nnx.Param(jnp.ones(4)), linear()
    for jit in JITS:
        options = {"graph": True, "graph_updates": graph_updates}
        add = jit(lambda a, b: a[...] + b[...], in_shardings=(split, everywhere), **options)
        with pytest.raises(ValueError, match="Inconsistent aliasing"):
            add(variable, variable)
        assert add(variable, nnx.Param(jnp.ones(4)))[0] == 2
        pick = jit(lambda net, pair: pair[1][...] + 1, in_shardings=(None, (split, split)), **options)
        with pytest.raises(ValueError, match="Inconsistent aliasing"):
            pick(net, (nnx.Param(jnp.ones(4)), net.bias))
    with pytest.raises(ValueError, match=r"`net\.bias` and `pair\[1\]` are one Param, found None and NamedSharding"):
        pick(net, (nnx.Param(jnp.ones(4)), net.bias))


@pytest.mark.parametrize("option", ["in_shardings", "out_shardings"])
def test_what_is_no_prefix_is_refused_where_it_is_given(option: str, filters: dict[Any, Any]) -> None:
    graph = {"graph": True, "graph_updates": True}
    no_updates = {"graph": True, "graph_updates": False}
    tree = {"graph": False, "graph_updates": False}
    wrong = [
        (linear(), graph, "Graph nodes are not allowed as prefixes"),
        (nnx.Param(None), graph, "Variables prefixes are not supported"),
        (nnx.StateSharding(filters), tree, "cannot contain `StateSharding` objects"),
        (nnx.StateSharding(filters), no_updates, "cannot contain `StateSharding` objects"),
        (nnx.prefix(linear(), filters, graph=True), graph, "only allowed as prefixes when"),
        (nnx.prefix(linear(), filters, graph=True), tree, "only allowed as prefixes when"),
    ]
    for prefix, mode, message in wrong:
        for jit in JITS:
            with pytest.raises(ValueError, match=message):
                jit(lambda x: x, **{option: prefix}, **mode)


def test_a_tree_state_that_is_no_prefix_is_refused(everywhere: NamedSharding) -> None:
    bare = jax.tree.map(lambda _: everywhere, extract.to_tree2(linear()))
    with pytest.raises(ValueError, match=r"expected what `nnx\.prefix"):
        partax.nnx.jit(lambda: linear(), out_shardings=bare, graph=True, graph_updates=False)


def test_a_variable_that_stays_as_it_is_keeps_the_sharding_it_came_with(filters: dict[Any, Any]) -> None:
    """This is ours alone: what is not changed is not touched."""
    net = linear()
    before = net.kernel.get_raw_value()
    jitted = partax.nnx.jit(lambda net: net.bias[...] * 2, in_shardings=(nnx.StateSharding(filters),))
    assert jitted(net)[0] == 0
    assert net.kernel.get_raw_value() is before
