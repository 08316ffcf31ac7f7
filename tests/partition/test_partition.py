"""Guards the promise that partition, combine and filter behave as Equinox's do, on any pytree: same
types, identical kept leaves, prefix specs, `is_leaf`, `replace`, `inverse` and the ValueErrors."""

import collections
import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax

Point = collections.namedtuple("Point", ["x", "y"])


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Config:
    array: object
    label: str = dataclasses.field(metadata={"static": True})


class Layer(eqx.Module):
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
        "module": Layer(jnp.ones((2, 2)), None),
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
    model = (Layer(jnp.ones(2), jnp.zeros(2), "first"), Layer(jnp.ones(3), None, "second"))
    kept, rest = partax.partition(model, (False, True))
    assert type(kept[0]) is Layer
    assert kept[0].weight is None
    assert kept[0].bias is None
    assert kept[0].name == "first"
    assert kept[1].weight is model[1].weight
    assert rest[0].weight is model[0].weight
    assert type(rest[1]) is Layer
    assert rest[1].weight is None
    assert rest[1].name == "second"


def test_a_spec_that_is_a_module_of_booleans_and_callables():
    model = Layer(weight=[jnp.ones(2), 1], bias=jnp.ones(3))
    spec = Layer(weight=partax.is_array, bias=False)
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


def test_is_leaf_that_raises_passes_its_error_on():
    def refuses(x):
        raise RuntimeError("not asked")

    for call in (partax.partition, partax.filter):
        with pytest.raises(RuntimeError, match="not asked"):
            call([1], partax.is_array, is_leaf=refuses)
    with pytest.raises(RuntimeError, match="not asked"):
        partax.combine([1], [None], is_leaf=refuses)


def test_a_predicate_that_raises_passes_its_error_on():
    def refuses(x):
        raise KeyError("predicate")

    with pytest.raises(KeyError, match="predicate"):
        partax.partition([1], refuses)
    assert partax.partition([1], True) == ([1], [None])


@pytest.mark.parametrize(
    "spec",
    [1, 0, "yes", 1.0, np.bool_(True), np.array(True), jnp.array(True), object(), [True, 1]],
    ids=lambda spec: type(spec).__name__ if type(spec) is object else repr(spec),
)
def test_a_spec_leaf_that_is_neither_bool_nor_callable_is_a_value_error(spec):
    for call in (partax.partition, partax.filter):
        with pytest.raises(ValueError, match="filter"):
            call([1, 2], spec)


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
        (Layer(1, 2, "a"), Layer(True, True, "b")),
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


def test_combine_of_disjoint_parts_in_every_order():
    tree = every_family()
    arrays, rest = partax.partition(tree, partax.is_array)
    strings, others = partax.partition(rest, lambda x: isinstance(x, str))
    for parts in itertools.permutations([arrays, strings, others]):
        assert_identical_trees(partax.combine(*parts), tree)


def test_combine_of_one_tree_is_that_tree():
    tree = every_family()
    assert_identical_trees(partax.combine(tree), tree)


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


def test_works_under_tracing_and_keeps_the_tracers():
    def function(x, n):
        tree = {"x": x, "n": n, "static": "s"}
        kept, rest = partax.partition(tree, partax.is_inexact_array)
        assert kept["x"] is x
        assert rest["n"] is n
        assert partax.combine(kept, rest)["x"] is x
        return kept["x"] * 2, rest["n"]

    doubled, n = jax.jit(function)(jnp.ones(2), jnp.arange(2))
    np.testing.assert_array_equal(doubled, 2.0)
    np.testing.assert_array_equal(n, [0, 1])


def test_shardings_are_kept():
    sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("data",)), jax.sharding.PartitionSpec("data"))
    tree = [jax.device_put(jnp.ones(4), sharding), "s"]
    kept, rest = partax.partition(tree, partax.is_array)
    assert partax.combine(kept, rest)[0].sharding == sharding


def test_the_input_is_not_changed():
    tree = every_family()
    before = jax.tree.leaves(tree)
    kept, rest = partax.partition(tree, partax.is_array)
    kept["tuple"] = rest["list"] = None
    assert all(a is b for a, b in zip(jax.tree.leaves(tree), before, strict=True))
