"""Guards the promise that no input crashes: random trees and static values against slow models, and objects whose
methods break the rules, which get an exception and leave everything working. `.ci/fuzz` runs them under a fuzzer."""

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partax
from partax import _core
from partax._pytree.spec_data import leaf_paths
from partition_reference import assert_identical
from random_trees import aux_data, build, fresh, hashables, leaves, lookalikes, recipes, thorough, variants
from reference import canonical, dynamic_leaves, is_dynamic, static_key
from trees import Bag, Cell, Config, Pair, array

pytestmark = pytest.mark.filterwarnings("ignore")  # of filters that match nothing


class Broken(Exception):
    """Raised by hostile objects."""


REFUSALS = (TypeError, ValueError, RecursionError)
# Also for a container that changed meanwhile, parts that lack a path, and an attribute that is missing.
ERRORS = (*REFUSALS, Broken, GeneratorExit, RuntimeError, KeyError, AttributeError)


def outcome(call: Callable[[], Any], allowed: tuple[type[BaseException], ...] = ERRORS) -> Any:
    """The result of a call, or the exception, which must be an allowed one."""
    try:
        return call()
    except allowed as error:
        assert type(error) is not RuntimeError or "C++" not in str(error), error
        return error


def change(value: Any) -> bool:
    """Changes the first mutable container inside, if there is one."""
    if type(value) is list:
        value.append(None)
    elif isinstance(value, dict):
        value["more"] = None
    elif type(value) is set:
        value.add("more")
    elif type(value) is bytearray:
        value.append(0)
    else:
        return any(map(change, value if isinstance(value, tuple) else ()))
    return True


# --- trees

WRAPPER = partax.filter_jit(lambda tree: None)


def flattened(tree: Any) -> tuple[list[Any], partax.tree.FlatSpec]:
    spec, arrays = partax.flat_partition(tree, is_dynamic, rest="static")
    return list(arrays.values()), spec


def arrays_of_match(call: _core.PreparedCall, tree: Any) -> list[Any] | None:
    """The arrays of another call of the same program; None if its program is another one."""
    other = call.rebind((tree,), {})
    return None if other is None else list(other.leaves)


def assert_same_objects(actual: Any, expected: Any) -> None:
    assert [id(x) for x in actual] == [id(x) for x in expected]


@thorough
@given(recipes.flatmap(lambda recipe: st.tuples(st.just(recipe), st.one_of(variants(recipe), recipes))))
def test_the_static_part_of_a_tree_is_that_of_the_model(pair: Any) -> None:
    left, equal, right = build(pair[0], 0), build(pair[0], 0), build(pair[1], 0)
    arrays, spec = flattened(left)
    call = _core.prepare_call(WRAPPER, (left,), {}, False)
    assert_same_objects(arrays, [x for _, x in dynamic_leaves(left)])
    assert leaf_paths(_core.describe_tree(left, "tree")[0]) == [path for path, _ in dynamic_leaves(left)]
    rebuilt = _core.tree_unflatten(spec, arrays)
    assert static_key(rebuilt) == static_key(jax.tree.map(lambda x: x, left))
    assert_same_objects([x for _, x in dynamic_leaves(rebuilt)], arrays)
    key, table = static_key(left), {spec: "left"}
    for tree in (left, equal, right):
        is_same = key == static_key(tree)
        other_arrays, other_spec = flattened(tree)
        assert (spec == other_spec) is is_same and (other_spec == spec) is is_same
        assert not is_same or hash(spec) == hash(other_spec)
        matched = arrays_of_match(call, tree)
        assert (matched is not None) is is_same
        if matched is not None:
            assert_same_objects(matched, other_arrays)
        assert table.get(other_spec) == ("left" if is_same else None)
    has_equal = key == static_key(equal)
    for node in jax.tree.leaves(left, is_leaf=lambda x: isinstance(x, Bag | Cell)):
        if isinstance(node, Bag | Cell) and change(node.label if isinstance(node, Bag) else node.mode):
            assert table.get(flattened(left)[1]) is None and arrays_of_match(call, left) is None
            assert table.get(flattened(equal)[1]) == ("left" if has_equal else None)
            break


# --- static values

statics = st.recursive(
    st.one_of(
        aux_data,
        st.floats(),
        st.sampled_from([np.int64(1), np.int32(1), np.bool_(True), np.float32(0), np.float32(-0.0), ...]),
        st.sampled_from([np.ones(2), jnp.ones(2)]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(OrderedDict, st.dictionaries(hashables, inner, max_size=2)),
        st.builds(Config, inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=6,
)


def similar(value: Any) -> st.SearchStrategy[Any]:
    near = [] if isinstance(value, np.ndarray | jax.Array) else lookalikes(value)
    return st.one_of(statics, st.sampled_from(near)) if near else statics


@thorough
@given(statics.flatmap(lambda value: st.tuples(st.just(value), similar(value))), st.sampled_from([Bag, Cell]))
def test_static_values_compare_as_in_the_model(pair: Any, kind: Any) -> None:
    values = (pair[0], fresh(pair[0]), pair[1])
    keys = [outcome(lambda v=v: canonical(v), (TypeError,)) for v in values]
    hashes = [outcome(lambda v=v: hash(partax.tree.Static(v)), (TypeError,)) for v in values]
    for value, key, hash_value in zip(values, keys, hashes, strict=True):
        assert isinstance(key, TypeError) is isinstance(hash_value, TypeError), (key, hash_value)
        for other, other_key, other_hash in zip(values, keys, hashes, strict=True):
            if isinstance(key, TypeError) or isinstance(other_key, TypeError):
                outcome(lambda v=value, o=other: _core.static_equal(v, o), (TypeError,))
                continue
            assert _core.static_equal(value, other) is (key == other_key), (value, other)
            assert key != other_key or hash_value == other_hash, (value, other)
    make = (lambda v: Bag(1, label=v)) if kind is Bag else (lambda v: Cell(1, mode=v))
    table = outcome(lambda: {flattened(make(values[0]))[1]: "first"}, REFUSALS)
    assert isinstance(table, TypeError) is isinstance(keys[0], TypeError), (table, keys[0])
    if isinstance(table, TypeError):
        return
    for value, key in zip(values, keys, strict=True):
        if not isinstance(key, TypeError):
            assert (flattened(make(value))[1] in table) is (key == keys[0]), value
    if change(values[0]) and values[0] is not values[1]:  # a key keeps the value as it was
        assert flattened(make(values[0]))[1] not in table
        assert (flattened(make(values[1]))[1] in table) is (keys[0] == keys[1])


# --- hostile objects


class World:
    """The containers and the tree of one example, which hostile objects change."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self.below = lambda limit: draw(st.integers(0, limit - 1))
        self.containers: list[Any] = []
        self.tree: Any = None
        self.disturbances = 0

    def disturb(self, how: int) -> None:
        self.disturbances += 1
        if self.disturbances > 20:
            return
        if how == 0:
            gc.collect(0)
        elif how == 1:
            _core.describe_tree(self.tree, "tree")
        for container in self.containers if how > 1 else ():
            if how == 2:
                container.clear()
            elif isinstance(container, list):
                container[:1] = [1] * 9 if how == 3 else [None]
            else:
                container.update({str(i): i for i in range(9)}) if how == 3 else container.popitem()

    def add(self, container: Any) -> Any:
        self.containers.append(container)
        return container


class Evil:
    """Does something if it is compared or hashed; nothing until it is `armed`."""

    armed = False

    def __init__(self, world: World) -> None:
        self.world, self.how, self.in_hash = world, world.below(8), world.below(2) == 1

    def _act(self, answer: Any, in_hash: bool) -> Any:
        if self.armed and in_hash == self.in_hash:
            if self.how == 0:
                raise Broken
            if self.how < 3:
                return np.array([True, False]) if self.how == 1 else NotImplemented
            self.world.disturb(self.how - 3)
        return answer

    def __eq__(self, other: object) -> Any:
        return self._act(type(other) is Evil, False)

    def __hash__(self) -> int:
        return self._act(7, True)


class Wild:
    """A node whose flatten and unflatten functions break the rules."""

    def __init__(self, world: World, items: list[Any]) -> None:
        self.world, self.items = world, items
        self.how, self.unflattened = world.below(14), world.below(6)
        self.calls = 0

    def flatten(self) -> Any:
        self.calls += 1
        match self.how:
            case 0:
                raise Broken
            case 1:
                return self.items, self, None
            case 2:
                return None
            case 3:
                return (item for item in self.items), self
            case 4:
                return [*self.items, self] if self.calls % 200 else self.items, self
            case 5:
                return self.items * (self.calls % 3), self
            case 6:
                return self.items, self.items
            case 7:
                return {"a": 1}, self
            case 8:
                raise GeneratorExit
            case how:
                self.world.disturb(how - 9)
        return self.items, self

    def unflatten(self, children: Any) -> Any:
        match self.unflattened:
            case 0:
                raise Broken
            case 1:
                return None
            case 2 if self.calls < 5:  # a node of 200 of itself would have 2**200 leaves
                return [*children, *children]
            case how:
                self.world.disturb(max(how - 3, 0))
        return list(children)


jax.tree_util.register_pytree_node(
    Wild, Wild.flatten, lambda aux, children: aux.unflatten(children) if isinstance(aux, Wild) else list(children)
)


def hostile_tree(data: Any, world: World, depth: int = 0) -> Any:
    inner = lambda: hostile_tree(data, world, depth + 1)
    children = lambda: [inner() for _ in range(world.below(4))]
    match world.below(11) if depth < 5 else 0:
        case 0:
            return build(data.draw(leaves), 1)
        case 1:
            return build(data.draw(recipes), 1)
        case 2:
            return world.add(children())
        case 3:
            return world.add({key: inner() for key in "ab"})
        case 4:
            wrap = [lambda t: [t], lambda t: (t,), lambda t: {"k": t}, Bag, Cell][world.below(5)]
            tree = inner()
            for _ in range([3, 60, 3000][world.below(3)]):
                tree = wrap(tree)
            return tree
        case 5 if world.containers:
            container = world.containers[world.below(len(world.containers))]
            if world.below(2):
                container.append(container) if isinstance(container, list) else container.update(self=container)
            return [container, container]
        case 6:
            return Bag(*children(), label=[Evil(world), inner()])
        case 7 | 8:
            evil = Evil(world)
            return [evil, {evil}, {evil: evil}, Config(evil), Cell(1, mode=(evil,))][world.below(5)]
        case _:
            return Wild(world, children())


def operations(tree: Any, other: Any, leaf_filter: Any) -> Iterator[Callable[[], Any]]:
    call = outcome(lambda: _core.prepare_call(WRAPPER, (tree,), {}, False))
    if isinstance(call, _core.PreparedCall):
        yield lambda: arrays_of_match(call, other)
        yield lambda: _core.describe_tree(tree, "tree")
    if isinstance(parts := outcome(lambda: partax.partition(tree, leaf_filter)), tuple):
        yield lambda: partax.combine(*parts)
        yield lambda: partax.combine(other, *parts)
    yield lambda: partax.partition(tree, tree, strict=True)
    yield lambda: partax.filter(tree, True, is_leaf=lambda x: isinstance(x, Wild))
    if isinstance(fixed := outcome(lambda: partax.flat_partition(tree, is_dynamic, rest="static")), tuple):
        yield lambda: {fixed[0]: 1}.get(flattened(other)[1])
        yield lambda: partax.flat_combine(*fixed)
        yield lambda: repr(fixed[0])
    yield lambda: hash(partax.tree.Static(tree))
    yield lambda: _core.static_equal(tree, other)


@thorough
@given(st.data())
def test_hostile_objects_get_an_exception_and_everything_works_afterwards(data: Any) -> None:
    world = World(data.draw)
    left, right = hostile_tree(data, world), hostile_tree(data, world)
    world.tree = left
    how = world.below(6)

    def leaf_filter(leaf: Any) -> Any:
        if how == 0:
            raise Broken
        world.disturb(how - 1)
        return [leaf] if how == 5 else how % 2 == 0

    Evil.armed = True
    try:
        for tree in (left, right):
            for operation in operations(tree, right, leaf_filter):
                outcome(operation)
    finally:
        Evil.armed = False
    tree = {"a": [1, array(1)], "b": Bag(2.0, label=[1])}
    arrays, spec = flattened(tree)
    rebuilt = _core.tree_unflatten(spec, arrays)
    assert arrays[0] is tree["a"][1] and canonical(rebuilt["b"].label) == canonical([1])
    assert_identical(partax.combine(*partax.partition(tree, int, Bag)), tree)
