"""Trees from a fuzzer's bytes: every stage that walks them, against jax.tree and the models; and trees whose nodes
break the rules, which get an exception and leave everything working."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import jax

import partax
import partition_reference as reference
from fuzz.source import REFUSALS, Source, outcome, patched
from fuzz.values import ARRAYS, HARMLESS, Evil, World, change, hashable, remembered, static
from fuzz.wild_nodes import Wild, wild_predicate
from partax import _core
from partition_reference import AllOf, AnyOf, Glob, Not, Regex, assert_identical, assert_identical_dicts, for_partax
from random_trees import Tag
from reference import aux_of, canonical, children_of, dynamic_leaves, is_dynamic
from trees import Bag, Cell, Config, Layer, Pair, Tray, double

MAX_DEPTH = 6
MAX_NODES = 60
KEYS: list[list[Any]] = [
    ["b", "a", "", "a/b", "0", "\u00e9", "\ud800"],
    [3, -1, 0.5, True, 1.5, float("inf"), 10**20],
    [(1, "x"), (0,), (), (1, "a")],
    [float("nan")],  # alone: no order is right where it stands beside others, and jax has its own
    [b"b", b"a"],
    [None],
]
PATHS = ["**", "*", "0", "**/0", "a/**", "*/*", "{a,0}/**", "**/weight", "", "**/*a*", "{left,0,**/b}"]
REGEXES = ["", "0", "^a", "/", "t$", "[0-9]/", "^$"]
TYPES = [tuple, list, dict, OrderedDict, Pair, Cell, Layer, Bag, Tray, Tag, type(None), jax.Array, int, str, object]
PREDICATES = [partax.is_array, partax.is_inexact_array, partax.is_array_like, callable, is_dynamic, lambda x: x is None]


def check(data: bytes) -> None:
    """Fails where a stage disagrees with the model, or raises what it should not."""
    source = Source(data)
    what = source.below(8)
    first, second = patched(source)
    world = World()
    left, right = (_tree(Source(part), world, 0) for part in (first, second))
    again = _tree(Source(first), world, 0)
    world.root = left
    filters = tuple(_filter(source, world) for _ in range(source.below(4)))
    if world.hostile or not all(map(_is_readable, (left, right))):
        _check_hostile(what, left, right, filters)
    elif what < 4:
        check_static_part(left, again, right)
    elif what < 6:
        _check_partition(left, filters)
    else:
        _check_flat(left, right, filters, source.pick([None, "/", ".", ""]))


# --- trees


def _tree(source: Source, world: World, depth: int) -> Any:
    def inner() -> Any:
        return _tree(source, world, depth + 1)

    def children(most: int) -> list[Any]:
        return [inner() for _ in range(source.below(most + 1))]

    source.nodes += 1
    if depth >= MAX_DEPTH or source.nodes > MAX_NODES:
        return source.pick(ARRAYS)
    match source.below(24):
        case 0 | 1 | 2:
            return source.pick(ARRAYS)
        case 3:
            leaf = hashable(source, world, 2)
            return Config(leaf) if isinstance(leaf, tuple) else leaf
        case 4:
            return source.pick([None, {1, 2.0}, bytearray(b"a"), double, range(2)])
        case 5:
            return tuple(children(4))
        case 6 | 7:
            return remembered(world, children(6))
        case 8 | 9:
            keys = source.pick(KEYS)
            chosen = {source.pick(keys): inner() for _ in range(source.below(5))}
            if source.below(16) == 15:
                chosen |= {"a": 1, 2: 2}  # these cannot be sorted
            return remembered(world, chosen)
        case 10:
            return OrderedDict((source.pick(source.pick(KEYS)), inner()) for _ in range(source.below(4)))
        case 11:
            factory = source.pick([int, list, None])
            return defaultdict(factory, ((source.pick(KEYS[0]), inner()) for _ in range(source.below(4))))
        case 12:
            return Pair(inner(), inner())
        case 13:
            return Cell(inner(), inner(), mode=static(source, world, 2))
        case 14:
            fields = {name: inner() for name in ("weight", "bias", "rate")}
            fields |= {"scale": static(source, world, 2), "activation": len}
            if source.below(4) == 3:
                del fields[source.pick(["bias", "weight", "scale"])]
            layer = object.__new__(Layer)  # without __init__, in which Equinox looks into hostile nodes
            for name, value in fields.items():
                object.__setattr__(layer, name, value)
            return layer
        case 15:
            return Bag(*children(4), label=static(source, world, 2))
        case 16:
            return Tray(inner(), inner(), label=static(source, world, 2))
        case 17:
            return Tag(static(source, world, 2))
        case 18:
            return jax.tree_util.Partial(double, *children(2), k=inner())
        case 19:
            return _deep(source, world, inner())
        case 20:
            world.hostile = True
            evil = Evil(world, HARMLESS)
            made = source.pick([lambda: evil, lambda: {evil}, lambda: {evil: evil}, lambda: [evil, Config(evil)]])()
            evil.how = source.below(18)
            return made
        case 21 if world.containers and source.below(4) == 0:
            world.hostile = True
            found = source.pick(world.containers)
            if isinstance(found, list):
                found.append(found)
            elif isinstance(found, dict):
                found["itself"] = found
            return found
        case _:
            world.hostile = True
            return Wild(world, children(4), source.byte(), source.byte(), static(source, world, 3))


def _deep(source: Source, world: World, tree: Any) -> Any:
    wrap = source.pick([lambda t: [t], lambda t: (t,), lambda t: {"k": t}, lambda t: OrderedDict(k=t), Bag, Cell])
    levels = source.byte() * source.pick([1, 1, 1, 1, 20])
    # jax and the models must not see what is too deep for them: jaxlib then forgets to leave Python's recursion.
    world.hostile = world.hostile or levels > 50
    for _ in range(levels):
        tree = wrap(tree)
    return tree


def _is_readable(tree: Any) -> bool:
    """Whether jax and the models, which recurse in Python, can read the tree, and it may be static."""
    try:
        jax.tree_util.tree_flatten_with_path(tree)
        static_key(tree)
    except REFUSALS:
        return False
    return True


def _filter(source: Source, world: World, depth: int = 0) -> Any:
    """A filter as the model writes it."""
    match source.below(8 if depth < 3 else 5):
        case 0:
            return source.pick(PREDICATES)
        case 1:
            return source.pick(TYPES)
        case 2:
            return Glob(source.pick(PATHS))
        case 3:
            return Regex(source.pick(REGEXES))
        case 4:
            if source.below(4) == 3:
                world.hostile = True
                return wild_predicate(world, source.byte())
            return source.yes()
        case 5:
            return AnyOf(tuple(_filter(source, world, depth + 1) for _ in range(source.below(3))))
        case 6:
            return AllOf(tuple(_filter(source, world, depth + 1) for _ in range(source.below(3))))
        case _:
            return Not(_filter(source, world, depth + 1))


# --- trees that keep the rules


def static_key(tree: Any) -> Any:
    """The model's static key."""
    if is_dynamic(tree):
        return "dynamic"
    children = children_of(tree)
    if children is None:
        return "leaf", canonical(tree)
    # Aux data of registered functions needs no hash; what is read from fields does.
    aux = canonical(aux_of(tree), compared_only=_core.node_kind(tree) == "registered")
    return "node", type(tree), aux, tuple(static_key(child) for _, child in children)


def same_objects(found: Any, expected: Any) -> None:
    assert [id(x) for x in found] == [id(x) for x in expected]


def check_static_part(left: Any, again: Any, right: Any) -> None:
    leaves, spec = _core.flatten(left)
    expected = dynamic_leaves(left)
    same_objects(leaves, [x for _, x in expected])
    assert spec.dynamic_paths() == [path for path, _ in expected]
    assert spec.num_dynamic == len(expected)
    rebuilt = spec.rebuild(leaves)
    assert static_key(rebuilt) == static_key(jax.tree.map(lambda x: x, left))
    same_objects([x for _, x in dynamic_leaves(rebuilt)], leaves)
    key = static_key(left)
    table = {spec: "left"}
    for tree in (left, again, right):
        same = key == static_key(tree)
        other_leaves, other_spec = _core.flatten(tree)
        assert (spec == other_spec) is same and (other_spec == spec) is same
        assert not same or hash(spec) == hash(other_spec)
        matched = spec.match(tree)
        assert (matched is not None) is same
        if matched is not None:
            same_objects(matched, other_leaves)
        assert table.get(other_spec) == ("left" if same else None)
    stays = key == static_key(again)
    for node in jax.tree.leaves(left, is_leaf=lambda x: isinstance(x, Bag | Cell)):
        if isinstance(node, Bag | Cell) and change(node.label if isinstance(node, Bag) else node.mode):
            assert table.get(_core.flatten(left)[1]) is None and spec.match(left) is None
            assert table.get(_core.flatten(again)[1]) == ("left" if stays else None)
            break


def _check_partition(tree: Any, filters: tuple[Any, ...]) -> None:
    parts = partax.partition(tree, *map(for_partax, filters))
    for part, expected in zip(parts, reference.partition(tree, filters), strict=True):
        assert_identical(part, expected)
    assert_identical(partax.combine(*parts[::-1]), jax.tree.map(lambda x: x, tree))
    for f in filters:
        kept = reference.partition(tree, (f,))
        assert_identical(partax.filter(tree, for_partax(f)), kept[0])
        assert_identical(partax.filter(tree, for_partax(f), inverse=True), kept[1])


def _check_flat(left: Any, right: Any, filters: tuple[Any, ...], separator: str | None) -> None:
    made = [for_partax(f) for f in filters]
    spec, *dicts = partax.flat_partition(left, *made, separator=separator)
    expected = reference.flat_partition(left, filters, separator=separator)
    for found, wanted in zip(dicts, expected, strict=True):
        assert_identical_dicts(found, wanted)
    assert_identical(partax.flat_combine(spec, *dicts[::-1]), jax.tree.map(lambda x: x, left))
    specs = [partax.flat_partition(t, is_dynamic, rest="static", separator=separator)[0] for t in (left, right)]
    same = static_key(left) == static_key(right)
    assert (specs[0] == specs[1]) is same
    assert not same or hash(specs[0]) == hash(specs[1])
    other = partax.flat_partition(right, separator=separator)[1]
    crossed = outcome(lambda: partax.flat_combine(spec, other), (KeyError,))
    assert isinstance(crossed, KeyError) is (set(other) != set(spec.paths))


# --- trees that do not


def _check_hostile(what: int, left: Any, right: Any, filters: tuple[Any, ...]) -> None:
    made = [for_partax(f) for f in filters]
    for tree in (left, right):
        for operation in _operations(what, tree, left, right, made):
            outcome(operation)
    _check_works()


def _operations(what: int, tree: Any, left: Any, right: Any, filters: list[Any]) -> Iterator[Callable[[], Any]]:
    """What is done to a tree; what needs a result is left out where there is none."""
    if what < 3:
        if isinstance(found := outcome(lambda: _core.flatten(tree)), tuple):
            leaves, spec = found
            yield lambda: spec.rebuild(leaves)
            yield lambda: spec.match(left)
            yield lambda: spec.match(right)
            yield spec.dynamic_paths
            yield lambda: {spec: 1}.get(_core.flatten(right)[1])
            yield lambda: {spec: 1}.get(_core.flatten(tree)[1])
    elif what < 5:
        if isinstance(parts := outcome(lambda: partax.partition(tree, *filters)), tuple):
            yield lambda: partax.combine(*parts)
            yield lambda: partax.combine(right, *parts)
        yield lambda: partax.partition(tree, tree, strict=True)
        yield lambda: partax.filter(tree, True, is_leaf=lambda x: isinstance(x, Wild))
    else:
        if isinstance(flat := outcome(lambda: partax.flat_partition(tree, *filters)), tuple):
            yield lambda: partax.flat_combine(*flat)
        fixed = outcome(lambda: partax.flat_partition(tree, is_dynamic, rest="static", separator="/"))
        if isinstance(fixed, tuple):
            yield lambda: hash(fixed[0]) + (fixed[0] == fixed[0])
            yield lambda: partax.flat_combine(*fixed)
            yield lambda: repr(fixed[0])


def _check_works() -> None:
    tree = {"a": [1, ARRAYS[0]], "b": Bag(2.0, label=[1])}
    leaves, spec = _core.flatten(tree)
    assert leaves[0] is ARRAYS[0] and canonical(spec.rebuild(leaves)["b"].label) == canonical([1])
    assert_identical(partax.combine(*partax.partition(tree, int, Bag)), tree)
