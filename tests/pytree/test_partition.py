"""Guards the promise that partition gives a tree for each filter and one for the rest, each of the same structure and
types, and combine the tree again from any of them in any order; with one filter both do as Equinox's do."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
import partition_reference as reference
from partax import by_path, is_array, not_
from partition_reference import FILTERS, Glob, Not, assert_identical, for_partax, over_filters, reread
from trees import Layer, Model, Pair, array, make_model, network, over_samples

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose

Point = collections.namedtuple("Point", ["x", "y"])


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Config:
    array: object
    label: str = dataclasses.field(metadata={"static": True})


class Dense(eqx.Module):
    weight: object
    bias: object
    name: str = eqx.field(static=True, default="layer")


@jax.tree_util.register_pytree_node_class
class Custom:
    def __init__(self, *children):
        self.children = children

    def tree_flatten(self):
        return self.children, "aux"

    @classmethod
    def tree_unflatten(cls, aux, children):
        assert aux == "aux"
        return cls(*children)


def every_family():
    """One tree with all node families, arrays and non-arrays in each."""
    return {
        "tuple": (jnp.ones(2), 1),
        "list": [np.zeros(3), "text", None],
        "ordered": collections.OrderedDict(z=jnp.arange(3), a=2.5),
        "default": collections.defaultdict(int, k=np.float32(1), b=True),
        "named": Point(jnp.float32(1), len),
        "dataclass": Config(jnp.ones(1, jnp.bfloat16), "label"),
        "module": Dense(jnp.ones((2, 2)), None),
        "mlp": eqx.nn.MLP(2, 2, 2, 1, key=jax.random.key(0)),
        "custom": Custom(jnp.ones(1), object(), None),
        "key": jax.random.key(1),
        "empty": [(), {}, None],
    }


def is_point(x):
    return isinstance(x, Point)


def is_none(x):
    return x is None


def assert_identical_trees(left, right):
    """Same structure (with None as a leaf), same types, the same objects as leaves."""
    left_leaves, left_def = jax.tree.flatten(left, is_leaf=is_none)
    right_leaves, right_def = jax.tree.flatten(right, is_leaf=is_none)
    assert left_def == right_def
    for a, b in zip(left_leaves, right_leaves, strict=True):
        assert a is b


SPECS = {
    "is_array": lambda tree: partax.is_array,
    "is_array_like": lambda tree: partax.is_array_like,
    "is_inexact_array": lambda tree: partax.is_inexact_array,
    "is_inexact_array_like": lambda tree: partax.is_inexact_array_like,
    "python predicate": lambda tree: lambda x: isinstance(x, (int, np.ndarray)),
    "True": lambda tree: True,
    "False": lambda tree: False,
    "prefix of booleans": lambda tree: {k: i % 2 == 0 for i, k in enumerate(tree)},
    "prefix of both": lambda tree: {
        k: (True, False, partax.is_array, lambda x: callable(x))[i % 4] for i, k in enumerate(tree)
    },
    "full tree": lambda tree: jax.tree.map(lambda x: isinstance(x, jax.Array), tree),
}


def split(tree, spec, replace=None, is_leaf=None, inverse=False):
    """The model: one mask for each leaf by jax.tree, then pick."""
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_leaf)

    def masks(one_spec, subtree):
        subleaves = jax.tree.leaves(subtree, is_leaf=is_leaf)
        return [one_spec if isinstance(one_spec, bool) else bool(one_spec(x)) for x in subleaves]

    parts = jax.tree.leaves(jax.tree.map(lambda s, t: tuple(masks(s, t)), spec, tree))
    assert len(parts) == len(leaves)
    kept = [x if mask != inverse else replace for mask, x in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(treedef, kept)


@pytest.mark.parametrize("spec_name", SPECS)
def test_partition_filter_and_inverse_equal_the_model_and_equinox(spec_name):
    tree = every_family()
    spec = SPECS[spec_name](tree)
    kept, rest = partax.partition(tree, spec)
    assert_identical_trees(kept, split(tree, spec))
    assert_identical_trees(rest, split(tree, spec, inverse=True))
    assert_identical_trees(partax.filter(tree, spec), kept)
    assert_identical_trees(partax.filter(tree, spec, inverse=True), rest)
    if spec_name != "is_inexact_array_like":
        assert_identical_trees(kept, eqx.partition(tree, spec)[0])
        assert_identical_trees(rest, eqx.partition(tree, spec)[1])


@pytest.mark.parametrize("spec_name", SPECS)
def test_combine_undoes_partition_in_either_order(spec_name):
    tree = every_family()
    kept, rest = partax.partition(tree, SPECS[spec_name](tree))
    assert_identical_trees(partax.combine(kept, rest), tree)
    assert_identical_trees(partax.combine(rest, kept), tree)


@pytest.mark.parametrize("family", [name for name in every_family() if name != "key"])
def test_each_family_keeps_types_and_key_order(family):
    tree = every_family()[family]
    leaves, treedef = jax.tree.flatten(tree)
    expected = jax.tree.unflatten(treedef, [x if eqx.is_array(x) else None for x in leaves])
    kept, rest = partax.partition(tree, partax.is_array)
    both = partax.combine(kept, rest)
    for result in (kept, rest, both):
        assert type(result) is type(expected)
        if isinstance(expected, dict):
            assert list(result) == list(expected)
        if isinstance(expected, collections.defaultdict):
            assert result.default_factory is expected.default_factory
    assert_identical_trees(kept, expected)


def test_dict_key_order_is_that_of_jax_unflatten():
    tree = {"b": 1, "a": jnp.ones(1), "c": {"z": 2, "y": 3}}
    expected = jax.tree.map(lambda x: x, tree)
    kept, rest = partax.partition(tree, partax.is_array)
    for result in (kept, rest, partax.combine(kept, rest)):
        assert list(result) == list(expected)
        assert list(result["c"]) == list(expected["c"])
    ordered = collections.OrderedDict(b=1, a=2)
    assert list(partax.filter(ordered, True)) == ["b", "a"]


def test_false_subtree_becomes_the_same_module_with_none_leaves():
    model = (Dense(jnp.ones(2), jnp.zeros(2), "first"), Dense(jnp.ones(3), None, "second"))
    kept, rest = partax.partition(model, (False, True))
    assert type(kept[0]) is Dense
    assert kept[0].weight is None
    assert kept[0].bias is None
    assert kept[0].name == "first"
    assert kept[1].weight is model[1].weight
    assert rest[0].weight is model[0].weight
    assert type(rest[1]) is Dense
    assert rest[1].weight is None
    assert rest[1].name == "second"


def test_a_spec_that_is_a_module_of_booleans_and_callables():
    model = Dense(weight=[jnp.ones(2), 1], bias=jnp.ones(3))
    spec = Dense(weight=partax.is_array, bias=False)
    kept = partax.filter(model, spec)
    assert kept.weight[0] is model.weight[0]
    assert kept.weight[1] is None
    assert kept.bias is None


def test_predicates_see_the_leaf_itself_once_and_in_order():
    tree = [(1, "a"), {"k": 2.0}, None]
    seen = []
    partax.filter(tree, lambda x: seen.append(x) or True)
    assert seen == [1, "a", 2.0]
    seen.clear()
    partax.partition(tree, lambda x: seen.append(x) or True)
    assert seen == [1, "a", 2.0]


def test_truthiness_of_a_predicate_s_answer_counts():
    tree = [0, 5, "", "x"]
    assert partax.filter(tree, lambda x: x) == [None, 5, None, "x"]
    assert partax.filter([1, 2], lambda x: np.bool_(x == 1)) == [1, None]


@pytest.mark.parametrize("replace", [0, "gone", jnp.ones(1), object()], ids=["0", "str", "array", "object"])
def test_replace_stands_where_a_leaf_was_taken_out(replace):
    tree = [jnp.ones(2), 1, {"a": None}]
    kept, rest = partax.partition(tree, partax.is_array, replace=replace)
    assert kept[0] is tree[0]
    assert kept[1] is replace
    assert rest[0] is replace
    assert rest[1] == 1
    assert kept[2] == rest[2] == {"a": None}
    inverse = partax.filter(tree, partax.is_array, inverse=True, replace=replace)
    assert inverse[0] is replace
    assert inverse[1] == 1


def test_filter_spec_is_the_keyword_s_name():
    assert partax.filter([1, "a"], filter_spec=partax.is_array_like) == [1, None]
    assert partax.partition([1, "a"], filter_spec=[True, False]) == ([1, None], [None, "a"])


def test_is_leaf_makes_a_subtree_one_leaf():
    tree = [Point(1, jnp.ones(2)), {"p": Point(2, 3)}, 4]
    seen = []

    def spec(x):
        seen.append(x)
        return is_point(x)

    kept, rest = partax.partition(tree, spec, is_leaf=is_point)
    assert seen == [tree[0], tree[1]["p"], 4]
    assert kept[0] is tree[0]
    assert kept[1]["p"] is tree[1]["p"]
    assert kept[2] is None
    assert rest == [None, {"p": None}, 4]
    assert partax.filter(tree, spec, is_leaf=is_point)[0] is tree[0]
    assert_identical_trees(partax.combine(rest, kept, is_leaf=is_point), tree)
    assert_identical_trees(partax.combine(kept, rest, is_leaf=is_point), tree)


def test_is_leaf_that_takes_none_as_a_leaf():
    tree = [None, 1]
    for spec in (True, lambda x: True):
        kept, rest = partax.partition(tree, spec, is_leaf=is_none, replace="out")
        assert kept == [None, 1]
        assert rest == ["out", "out"]


def test_is_leaf_with_the_built_in_predicates():
    tree = [(jnp.ones(1), 2), [3]]
    kept, rest = partax.partition(tree, partax.is_array, is_leaf=lambda x: isinstance(x, tuple))
    assert kept == [None, [None]]
    assert rest[0] is tree[0]
    assert rest[1] == [3]


def test_is_leaf_at_the_root():
    tree = (1, 2)
    assert partax.filter(tree, lambda x: x == (1, 2), is_leaf=lambda x: True) is tree
    assert partax.filter(tree, False, is_leaf=lambda x: True) is None


@pytest.mark.parametrize(
    ("tree", "spec"),
    [
        ([1, 2], [True]),
        ([1, 2], (True, True)),
        ({"a": 1}, {"b": True}),
        ({"a": 1}, {"a": True, "b": False}),
        (1, [True]),
        ([1, 2], [True, None]),
        ([1, 2], None),
        (Dense(1, 2, "a"), Dense(True, True, "b")),
        ([1, [2]], [True, [True, True]]),
        (Point(1, 2), (True, True)),
    ],
    ids=repr,
)
def test_a_spec_whose_structure_does_not_match_is_a_value_error(tree, spec):
    for call in (partax.partition, partax.filter, eqx.partition, eqx.filter):
        with pytest.raises(ValueError):
            call(tree, spec)


def test_a_none_in_the_spec_matches_a_none_in_the_tree():
    assert partax.filter([1, None], [True, None]) == [1, None]
    assert partax.partition(None, None) == (None, None)


def test_a_traced_spec_is_a_value_error():
    for call in (partax.partition, partax.filter):

        @jax.jit
        def traced(mask, call=call):
            return call([1.0, 2.0], [True, mask])

        with pytest.raises(ValueError, match="filter"):
            traced(True)


def test_combine_takes_the_first_that_is_not_none():
    assert partax.combine([1, None, None], [2, 2, None], [3, 3, None]) == [1, 2, None]
    falsy = [0, False, "", 0.0]
    assert_identical_trees(partax.combine(falsy, [1, 1, 1, 1]), falsy)


def test_combine_puts_a_subtree_where_the_first_has_none():
    assert partax.combine([None, 1], [{"a": 2}, None]) == [{"a": 2}, 1]
    assert partax.combine(None, (1, 2)) == (1, 2)


@pytest.mark.parametrize(
    "trees",
    [([1, 2], [1]), ([1], (1,)), ({"a": 1}, {"b": 1}), ([1], 1), ((1, 2), (None, None, None))],
    ids=repr,
)
def test_combine_of_different_structures_is_a_value_error(trees):
    for call in (partax.combine, eqx.combine):
        with pytest.raises(ValueError):
            call(*trees)


def test_shardings_are_kept():
    sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("data",)), jax.sharding.PartitionSpec("data"))
    tree = [jax.device_put(jnp.ones(4), sharding), "s"]
    kept, rest = partax.partition(tree, partax.is_array)
    assert partax.combine(kept, rest)[0].sharding == sharding


@over_samples
@over_filters
def test_every_leaf_is_where_the_slow_model_puts_it(make: Any, filters: tuple[Any, ...]) -> None:
    tree = make()
    parts = partax.partition(tree, *map(for_partax, filters))
    expected = reference.partition(tree, filters)
    assert type(parts) is tuple and len(parts) == len(filters) + 1
    for part, wanted in zip(parts, expected, strict=True):
        assert_identical(part, wanted)


@over_samples
def test_each_part_keeps_the_structure_and_each_leaf_is_in_one_part(make: Any) -> None:
    tree = make()
    gone = object()
    parts = partax.partition(tree, *FILTERS["predicates"], replace=gone)
    leaves, treedef = jax.tree.flatten(tree)
    columns = []
    for part in parts:
        found, structure = jax.tree.flatten(part)
        assert structure == treedef
        columns.append(found)
    for leaf, candidates in zip(leaves, zip(*columns, strict=True), strict=True):
        kept = [x for x in candidates if x is not gone]
        assert len(kept) == 1 and kept[0] is leaf


@over_samples
@over_filters
def test_combine_puts_all_parts_together_in_any_order(make: Any, filters: tuple[Any, ...]) -> None:
    tree = make()
    parts = partax.partition(tree, *map(for_partax, filters))
    orders = list(itertools.permutations(parts)) if len(parts) <= 4 else [parts, parts[::-1]]
    for order in orders:
        assert_identical(partax.combine(*order), reread(tree))


@pytest.mark.parametrize("make", [network, make_model], ids=["network", "model"])
def test_combine_takes_any_subset_of_the_parts(make: Any) -> None:
    tree = make()
    filters = (by_path("**/weight"), is_array, str)
    parts = partax.partition(tree, *filters)
    owners = [[x is not None for x in jax.tree.leaves(part, is_leaf=lambda x: x is None)] for part in parts]
    leaves, treedef = jax.tree.flatten(tree, is_leaf=lambda x: x is None)
    for size in range(1, len(parts) + 1):
        for chosen in itertools.permutations(range(len(parts)), size):
            both = partax.combine(*(parts[i] for i in chosen))
            expected = [leaf if any(owners[i][n] for i in chosen) else None for n, leaf in enumerate(leaves)]
            assert_identical(both, jax.tree.unflatten(treedef, expected))
            if size == len(parts):
                assert_identical(both, reread(tree))


def test_parts_can_be_partitioned_and_combined_again() -> None:
    tree = network()
    arrays, rest = partax.partition(tree, is_array)
    linear, conv, others = partax.partition(arrays, eqx.nn.Linear, eqx.nn.Conv2d)
    assert_identical(partax.combine(others, rest, linear, conv), reread(tree))
    assert_identical(partax.combine(conv, linear, others), arrays)


def test_replace_stands_in_every_part() -> None:
    gone = object()
    first, second, rest = partax.partition([1, "x", 2.5], int, str, replace=gone)
    assert first == [1, gone, gone]
    assert second == [gone, "x", gone]
    assert rest == [gone, gone, 2.5]


def test_no_filter_gives_the_rest_alone() -> None:
    tree = make_model()
    (rest,) = partax.partition(tree)
    assert_identical(rest, tree)


def test_one_filter_by_its_keyword() -> None:
    tree = [1, "x", array(2)]
    for f in (is_array, str, by_path("1"), [True, False, is_array]):
        for part, expected in zip(partax.partition(tree, filter_spec=f), partax.partition(tree, f), strict=True):
            assert_identical(part, expected)
    with pytest.raises(TypeError):
        partax.partition(tree, is_array, filter_spec=is_array)
    with pytest.raises(TypeError):
        partax.partition(tree, is_array, unknown=1)
    with pytest.raises(TypeError):
        partax.partition()


def test_filter_takes_every_kind_of_filter_and_one_only() -> None:
    tree = network()
    for f in (eqx.nn.Linear, (str, jax.Array), by_path("layers/**"), not_(is_array)):
        kept, rest = partax.partition(tree, f)
        assert_identical(partax.filter(tree, f), kept)
        assert_identical(partax.filter(tree, f, inverse=True), rest)
    for second in (str, (str, int), is_array, by_path("**"), {"a": True}):
        with pytest.raises(TypeError, match="`inverse`"):
            partax.filter(tree, is_array, second)  # pyright: ignore[reportArgumentType]


def test_the_input_is_not_changed_and_parts_share_no_container_with_it() -> None:
    tree = {"a": [1, {"b": "x"}], "c": Pair([2], "y")}
    parts = partax.partition(tree, int, str)
    for part in parts:
        part["a"][1].clear()
        part["a"].clear()
        part["c"].left.clear()
        part.clear()
    assert tree == {"a": [1, {"b": "x"}], "c": Pair([2], "y")}


def test_is_leaf_holds_for_every_filter() -> None:
    tree = [Pair(1, "x"), {"p": Pair(2, 3)}, 4, "y"]
    is_leaf = lambda x: isinstance(x, Pair)
    for filters in ((tuple, int), (int, str), (Glob("*"), Glob("1/p")), (Not(str),), (is_leaf, is_leaf), (list,)):
        parts = partax.partition(tree, *map(for_partax, filters), is_leaf=is_leaf)
        for part, wanted in zip(parts, reference.partition(tree, filters, is_leaf=is_leaf), strict=True):
            assert_identical(part, wanted)
        assert_identical(partax.combine(*parts, is_leaf=is_leaf), tree)
        assert_identical(partax.combine(*parts[::-1], is_leaf=is_leaf), tree)


def test_is_leaf_is_asked_as_jax_asks() -> None:
    tree = {"b": [1, (2, None)], "a": Layer(array(1))}
    asked: list[list[Any]] = [[], []]
    partax.partition(tree, int, list, by_path("**"), is_leaf=lambda x: asked[0].append(x))
    jax.tree.flatten(tree, is_leaf=lambda x: asked[1].append(x))
    assert [id(x) for x in asked[0]] == [id(x) for x in asked[1]]


def test_under_tracing_tracers_are_kept() -> None:
    seen: list[int] = []

    @jax.jit
    def f(x: jax.Array, n: jax.Array) -> Any:
        tree = {"x": x, "n": [n, "s"], "m": Model([Layer(x)])}
        parts = partax.partition(tree, Model, by_path("n/0"), is_array)
        seen.extend(len(jax.tree.leaves(part)) for part in parts)
        assert parts[0]["m"].layers[0].weight is x and parts[1]["n"][0] is n and parts[2]["x"] is x
        whole = partax.combine(*parts)
        assert whole["x"] is x and whole["n"][0] is n
        return whole["m"].layers[0].weight * 2

    np.testing.assert_array_equal(f(jnp.ones(2), jnp.arange(2)), 2.0)
    assert seen == [2, 1, 1, 1]


def test_inside_and_through_filter_jit() -> None:
    tree = network()
    linear, conv, rest = partax.partition(tree, eqx.nn.Linear, eqx.nn.Conv2d)

    @partax.filter_jit
    def f(linear: Any, conv: Any, rest: Any) -> Any:
        return partax.partition(partax.combine(rest, conv, linear), eqx.nn.Linear, eqx.nn.Conv2d)

    for part, expected in zip(f(linear, conv, rest), (linear, conv, rest), strict=True):
        assert jax.tree.structure(part) == jax.tree.structure(expected)
        for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(expected), strict=True):
            assert a is b


def test_shapes_are_leaves_like_any_other() -> None:
    tree = eqx.filter_eval_shape(make_model)
    shapes, rest = partax.partition(tree, jax.ShapeDtypeStruct)
    assert len(jax.tree.leaves(shapes)) == 4 and not any(is_array(x) for x in jax.tree.leaves(rest))
    assert_identical(partax.combine(rest, shapes), tree)


def test_a_large_tree() -> None:
    tree = [array(1), *range(100_000), {"a": ["x"] * 1000}]
    parts = partax.partition(tree, is_array, lambda x: x == 7, by_path("1000{,0,1}"), dict, (int, str))
    assert [len(jax.tree.leaves(part)) for part in parts] == [1, 1, 3, 1000, 99_996, 0]
    assert parts[1][8] == 7 and parts[2][1000] == 999 and parts[3][-1] == tree[-1]
    assert_identical(partax.combine(*parts), tree)


def test_many_filters() -> None:
    tree = list(range(300))
    parts = partax.partition(tree, *(by_path(str(i)) for i in range(300)))
    assert all(part == [i if i == n else None for i in range(300)] for n, part in enumerate(parts[:-1]))
    assert parts[-1] == [None] * 300
    assert partax.combine(*parts) == tree
