"""Guards every native stage alone, through `partax._core`: what a node is, flatten, match, rebuild and paths
(static values have test_static_values.py, the bounded table of a wrapper's keys test_cache_info.py)."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import sys
import threading
import time
import weakref
from collections import OrderedDict, defaultdict
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import _core
from reference import assert_exact, dynamic_leaves, static_key, to_jax
from trees import SAMPLES, Bag, Cell, Colour, Config, Layer, Pair, Tray, array, endless_values, over_samples

KINDS = {
    "dynamic_leaf": [
        lambda: jnp.ones(2),
        lambda: np.ones(2),
        lambda: np.float32(1),
        lambda: np.bool_(True),
        lambda: jax.random.key(0),
        lambda: jax.new_ref(jnp.ones(2)),
    ],
    "static_leaf": [
        *[lambda x=x: x for x in (1, True, 1.5, 2j, "s", b"b", len, int, Colour.RED, Config())],
        object,
        lambda: {1},
        lambda: frozenset(),
        bytearray,
        lambda: functools.partial(len),
        lambda: jax.ShapeDtypeStruct((2,), jnp.float32),
    ],
    "none": [lambda: None],
    "tuple": [tuple, lambda: (1, 2)],
    "list": [list, lambda: [None]],
    "dict": [dict, lambda: {"a": 1}],
    "ordered_dict": [OrderedDict],
    "default_dict": [lambda: defaultdict(int)],
    "named_tuple": [lambda: Pair(1, 2)],
    "module": [lambda: Layer(array(2, 2)), lambda: eqx.nn.Identity()],
    "dataclass": [lambda: Cell(1)],
    "declared": [lambda: jax.tree_util.Partial(len)],
    "registered": [Bag, lambda: Tray(1, 2)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_node_kind_names_the_family(kind: str) -> None:
    for make in KINDS[kind]:
        assert _core.node_kind(make()) == kind


def test_subclasses_of_built_in_containers_are_leaves_as_in_jax() -> None:
    class MyList(list):
        pass

    class MyDict(dict):
        pass

    class MyTuple(tuple):
        __slots__ = ()

    for value in (MyList([1]), MyDict(a=1), MyTuple((1,))):
        assert jax.tree.leaves(value) == [value]
        assert _core.node_kind(value) == "static_leaf"


@over_samples
def test_flatten_agrees_with_jax_tree(make: Any) -> None:
    tree = make()
    expected = dynamic_leaves(tree)
    found, spec = _core.flatten(tree)
    assert type(found) is list
    assert [id(x) for x in found] == [id(x) for _, x in expected]
    assert spec.num_dynamic == len(found)


@over_samples
def test_rebuild_gives_the_tree_that_jax_would(make: Any) -> None:
    tree = make()
    found, spec = _core.flatten(tree)
    rebuilt = spec.rebuild([jnp.asarray(x) for x in found])
    assert_exact(rebuilt, to_jax(tree))
    again = spec.rebuild(found)
    assert [id(x) for _, x in dynamic_leaves(again)] == [id(x) for x in found]


@over_samples
def test_match_collects_the_leaves_of_an_equal_tree(make: Any) -> None:
    _, spec = _core.flatten(make())
    tree = make()
    matched = spec.match(tree)
    assert matched is not None
    assert [id(x) for x in matched] == [id(x) for _, x in dynamic_leaves(tree)]


def test_specs_of_all_pairs_of_samples_match_as_the_reference_s_keys() -> None:
    trees = {name: make() for name, make in SAMPLES.items()}
    keys = {name: static_key(tree) for name, tree in trees.items()}
    specs = {name: _core.flatten(make())[1] for name, make in SAMPLES.items()}
    for left, right in itertools.product(SAMPLES, SAMPLES):
        same = keys[left] == keys[right]
        assert (specs[left].match(trees[right]) is not None) is same, (left, right)
        assert (specs[left] == specs[right]) is same, (left, right)
        if same:
            assert hash(specs[left]) == hash(specs[right])


def test_specs_differ_from_other_objects() -> None:
    _, spec = _core.flatten([1])
    assert spec != [1]
    assert spec != "spec"
    assert (spec == None) is False  # noqa: E711


@over_samples
def test_dynamic_paths_are_jax_s_key_paths_below_the_root(make: Any) -> None:
    tree = make()
    assert _core.flatten(tree)[1].dynamic_paths() == [p for p, _ in dynamic_leaves(tree)]
    named = _core.flatten(tree, root="model")[1].dynamic_paths()
    assert named == [path for path, _ in dynamic_leaves(tree, "model")]


def test_paths_of_every_sort_of_key() -> None:
    x = array(1)
    tree = {"layers": [Layer(x), {"k": Cell(x)}], "p": Pair(x, 1)}
    assert _core.flatten(tree)[1].dynamic_paths() == [
        "tree['layers'][0].weight",
        "tree['layers'][1]['k'].weight",
        "tree['p'].left",
    ]
    assert _core.flatten(x)[1].dynamic_paths() == ["tree"]
    assert _core.flatten(1)[1].dynamic_paths() == []


@pytest.mark.parametrize("change", [-1, 1, 5], ids=["one too few", "one too many", "many too many"])
def test_rebuild_with_the_wrong_number_of_leaves_is_a_value_error(change: int) -> None:
    leaves, spec = _core.flatten([array(1), {"a": array(2)}, "s"])
    wrong = leaves[:change] if change < 0 else leaves + [array(1)] * change
    with pytest.raises(ValueError, match=str(len(wrong))):
        spec.rebuild(wrong)
    assert spec.rebuild(leaves)[2] == "s"


def test_rebuild_takes_any_objects_as_leaves_and_makes_new_containers() -> None:
    leaves, spec = _core.flatten([array(1), {"a": array(2)}])
    assert spec.rebuild(["x", None]) == ["x", {"a": None}]
    first, second = spec.rebuild(leaves), spec.rebuild(leaves)
    assert first is not second
    assert first[1] is not second[1]
    first[1]["b"] = 1
    assert spec.rebuild(("x", "y")) == ["x", {"a": "y"}]


def test_rebuild_does_not_call_init() -> None:
    calls = []

    @jax.tree_util.register_pytree_node_class
    class Counted:
        def __init__(self, x: Any) -> None:
            calls.append(x)
            self.x = x

        def tree_flatten(self) -> tuple[Any, None]:
            return (self.x,), None

        @classmethod
        def tree_unflatten(cls, aux: None, children: Any) -> Counted:
            made = object.__new__(cls)
            (made.x,) = children
            return made

    class WithInit(eqx.Module):
        x: Any

        def __init__(self, x: Any) -> None:
            calls.append(x)
            self.x = x

    x = array(1)
    leaves, spec = _core.flatten([Counted(x), WithInit(x)])
    calls.clear()
    rebuilt = spec.rebuild(leaves)
    assert calls == []
    assert rebuilt[0].x is x
    assert rebuilt[1].x is x


class Meta(type):
    def __call__(cls, *fields: Any) -> Any:
        return super().__call__(*reversed(fields))


class Swapped(collections.namedtuple("Swapped", "left right")):
    def __new__(cls, left: Any, right: Any) -> Swapped:
        return super().__new__(cls, right, left)


class Told(collections.namedtuple("Told", "left right")):
    def __init__(self, *fields: Any) -> None:
        self.told = fields


class Named(Pair):
    label = "a class attribute"


Reversed = Meta("Reversed", (Pair,), {})


@pytest.mark.parametrize(
    "tree",
    [Pair(1, [2]), Named(1, 2), Swapped(1, 2), Told(1, 2), Reversed(1, 2), collections.namedtuple("Empty", "")()],
    ids=lambda tree: type(tree).__name__,
)
def test_rebuilt_named_tuples_are_what_calling_their_class_gives(tree: Any) -> None:
    leaves, treedef = jax.tree.flatten(tree)
    want = jax.tree.unflatten(treedef, leaves)
    found = _core.flatten(tree)[1].rebuild([])
    assert type(found) is type(tree) and found == want
    assert getattr(found, "told", None) == getattr(want, "told", None)


def test_the_class_of_a_rebuilt_named_tuple_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    Point = collections.namedtuple("Point", "x y")
    x = array(1)
    leaves, spec = _core.flatten([Point(x, "s")])
    assert spec.rebuild(leaves) == [(x, "s")]
    monkeypatch.setattr(Point, "__new__", lambda cls, x, y: (x, y, "new"))
    assert spec.rebuild(leaves) == [(x, "s", "new")]
    monkeypatch.undo()
    assert type(spec.rebuild(leaves)[0]) is Point
    short, spec = _core.flatten(tuple.__new__(Point, [x]))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        spec.rebuild(short)


def test_too_deep_and_self_containing_trees_are_recursion_errors() -> None:
    deep, endless, loop = endless_values()
    _, spec = _core.flatten([1, [2]])
    for tree in (deep, endless, loop, Bag(label=endless), Bag(label=deep)):
        with pytest.raises(RecursionError):
            _core.flatten(tree)
    assert spec.match(endless) is None
    assert spec.match([1, [2]]) == []


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 700])
def test_a_tree_that_contains_itself_is_not_read_again_and_again(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    read: list[None] = []
    monkeypatch.setattr(Fragile, "on_flatten", lambda: read.append(None))
    loop: list[Any] = []
    tree: Any = loop
    for _ in range(length - 1):
        tree = (tree,)
    loop.extend([Fragile(1), tree])
    operations = [
        lambda: _core.flatten(loop),
        lambda: partax.partition({"k": loop}, partax.is_array),
        lambda: partax.flat_partition([loop], partax.is_array),
        lambda: partax.filter_jit(lambda tree: 1)(loop),
    ]
    for operation in operations:
        read.clear()
        with pytest.raises(RecursionError, match="found a tree that contains itself, expected a finite tree"):
            operation()
        # Each walk ends where it comes back below one of the depths 64, 128, ...; a call walks up to three times.
        assert len(read) <= 3 * ((2 * max(64, length) + length) // length + 1)


def test_one_object_at_many_depths_is_not_a_cycle() -> None:
    shared: list[Any] = [1, ()]
    tree: Any = shared
    for _ in range(1990):
        tree = [shared, tree, ()]
    leaves, spec = _core.flatten(tree)
    assert leaves == [] and spec.match(tree) == []


def test_dict_keys_that_cannot_be_sorted_are_an_error_with_the_path() -> None:
    with pytest.raises((TypeError, ValueError), match="sort") as caught:
        _core.flatten([{"inner": {1: "a", "b": 2}}], root="config")
    assert "config[0]['inner']" in str(caught.value)


def nothing() -> None: ...


class Fragile:
    fail = ""
    on_flatten = on_unflatten = staticmethod(nothing)

    def __init__(self, x: Any) -> None:
        self.x = x


def _fragile_flatten(node: Fragile) -> tuple[Any, None]:
    Fragile.on_flatten()
    if Fragile.fail == "flatten":
        raise LookupError("flatten failed")
    return (node.x,), None


def _fragile_unflatten(_: None, children: Any) -> Fragile:
    Fragile.on_unflatten()
    if Fragile.fail == "unflatten":
        raise LookupError("unflatten failed")
    return Fragile(*children)


jax.tree_util.register_pytree_node(Fragile, _fragile_flatten, _fragile_unflatten)


def test_a_node_that_raises_passes_its_error_on_with_the_path(monkeypatch: Any) -> None:
    tree = {"a": [Fragile(array(1))]}
    leaves, spec = _core.flatten(tree)
    monkeypatch.setattr(Fragile, "fail", "flatten")
    with pytest.raises(LookupError, match="flatten failed") as caught:
        _core.flatten(tree, root="state")
    assert "state['a'][0]" in "".join(caught.value.__notes__)
    # A match that cannot be is none: the flatten that follows it raises.
    assert spec.match(tree) is None
    monkeypatch.setattr(Fragile, "fail", "unflatten")
    with pytest.raises(LookupError, match="unflatten failed"):
        spec.rebuild(leaves)
    monkeypatch.setattr(Fragile, "fail", "")
    assert spec.match(tree) == leaves
    assert spec.rebuild(leaves)["a"][0].x is leaves[0]


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fail", ["", "unflatten"])
def test_rebuild_leaves_the_garbage_collector_as_it_was(
    monkeypatch: pytest.MonkeyPatch, enabled: bool, fail: str
) -> None:
    seen: list[bool] = []
    leaves, spec = _core.flatten([Layer(array(1)), Pair((1,), {"a": Fragile(array(2))}), [3]])
    monkeypatch.setattr(Fragile, "fail", fail)
    monkeypatch.setattr(Fragile, "on_unflatten", lambda: seen.append(gc.isenabled()))
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(LookupError) if fail else contextlib.nullcontext():
            spec.rebuild(leaves)
        assert gc.isenabled() is enabled and seen == [enabled]
    finally:
        (gc.enable if was else gc.disable)()


def test_what_others_set_of_the_garbage_collector_while_rebuild_runs_stays() -> None:
    leaves, spec = _core.flatten([Pair(Layer(array(1)), (i, [Bag(i)])) for i in range(50)])
    wrong: list[str] = []
    done = threading.Event()

    def set_and_look() -> None:
        for _ in range(300):
            for switch, wanted in ((gc.disable, False), (gc.enable, True)):
                switch()
                for _ in range(3):
                    time.sleep(0)  # the other thread rebuilds
                    if gc.isenabled() is not wanted:
                        wrong.append(f"after {switch.__name__}")
        done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=set_and_look)
    try:
        thread.start()
        while not done.is_set():
            spec.rebuild(leaves)
    finally:
        sys.setswitchinterval(interval)
        thread.join()
        gc.enable()
    assert not wrong


def test_replacing_a_model_by_its_like_collects_no_garbage() -> None:
    leaves, spec = _core.flatten([Pair(Layer(array(1)), (i, [i])) for i in range(300)])
    collections_seen: list[Any] = []

    def count(phase: str, info: dict[str, Any]) -> None:
        collections_seen.append((phase, info))

    threshold = gc.get_threshold()
    gc.collect()
    gc.set_threshold(900, 1000, 1000)
    gc.callbacks.append(count)
    try:
        for _ in range(20):
            spec.rebuild(leaves)
        assert len(collections_seen) <= 2
        kept = [spec.rebuild(leaves) for _ in range(20)]
        _ = [[] for _ in range(1000)]
        assert len(collections_seen) > 2 and len(kept) == 20
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*threshold)


def test_nobody_finds_a_sequence_before_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    x = array(1)
    leaves, spec = _core.flatten((1, [x, Pair(Fragile(x), 2), 3], Fragile(x), "last"))
    seen: list[Any] = []

    def look() -> None:
        for found in gc.get_objects():
            if type(found) in (tuple, list, Pair):
                # What has an empty place cannot be read; the interpreter may crash.
                seen.append(len([*found]))

    gc.unfreeze()  # what conftest.py has hidden from the collector
    monkeypatch.setattr(Fragile, "on_unflatten", look)
    rebuilt = spec.rebuild(leaves)
    assert len(seen) > 100 and rebuilt[1][1][1:] == (2,) and rebuilt[3] == "last"


def test_a_spec_keeps_no_array_alive() -> None:
    x = np.ones(2)
    leaves, spec = _core.flatten([x, {"k": Layer(x)}, "s"])
    alive = weakref.ref(x)
    del x, leaves
    gc.collect()
    assert alive() is None
    assert spec.num_dynamic == 2


def test_types_that_come_and_go_do_not_confuse_the_type_table() -> None:
    for i in range(200):
        kind = type("Kind", (), {"x": i})
        if i % 2:
            jax.tree_util.register_pytree_node(kind, lambda k: ((1,), 2), lambda aux, c, k=kind: k())
        assert _core.node_kind(kind()) == ("registered" if i % 2 else "static_leaf")
        del kind


def test_a_leaf_type_that_is_registered_later_becomes_a_node() -> None:
    class Late:
        def __init__(self, x: Any) -> None:
            self.x = x

    late = Late(array(1))
    assert _core.flatten(late)[0] == []
    assert partax.filter(late, partax.is_array) is None
    jax.tree_util.register_pytree_node(Late, lambda n: ((n.x,), None), lambda _, c: Late(*c))
    assert partax.filter(late, partax.is_array).x is late.x
    leaves, spec = _core.flatten(late)
    assert leaves == [late.x]
    assert spec.dynamic_paths() == [path for path, _ in dynamic_leaves(late)]
