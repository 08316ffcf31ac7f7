"""Guards the promise that map, map_with_path, leaves, flatten, unflatten and structure of partax.tree do what those of
jax.tree do, on trees of every family, and put the path in their errors."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import partax
from partax import tree
from partition_reference import assert_identical
from random_trees import build, recipes, thorough, variants
from trees import SAMPLES, Bag, Cell, Pair, Tray, array

IS_LEAF: dict[str, Callable[[Any], bool] | None] = {
    "no": None,
    "none": lambda x: x is None,
    "tuples": lambda x: isinstance(x, tuple),
    "modules": lambda x: isinstance(x, eqx.Module | Bag),
}
over_samples = pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)
over_is_leaf = pytest.mark.parametrize("is_leaf", IS_LEAF.values(), ids=IS_LEAF)


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert type(found) is list and len(found) == len(expected)
    assert all(a is b for a, b in zip(found, expected, strict=True))


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the type of what it raises."""
    try:
        return call()
    except Exception as error:
        return type(error)


def check(given_tree: Any, is_leaf: Callable[[Any], bool] | None) -> None:
    """All functions beside jax's."""
    expected, treedef = jax.tree.flatten(given_tree, is_leaf)
    assert_same(tree.leaves(given_tree, is_leaf), expected)
    leaves, structure = tree.flatten(given_tree, is_leaf)
    assert_same(leaves, expected)
    assert structure.num_leaves == treedef.num_leaves
    again = tree.structure(given_tree, is_leaf)
    assert structure == again and hash(structure) == hash(again)
    numbers = [*range(len(expected))]
    for new in (expected, numbers):
        wanted = outcome(lambda new=new: treedef.unflatten(new))
        for form in (structure, treedef):
            made = outcome(lambda form=form, new=new: tree.unflatten(form, iter(new)))
            if isinstance(wanted, type):
                assert made is wanted
            else:
                assert_identical(made, wanted)
    seen: list[Any] = []
    mapped = tree.map(lambda x: (seen.append(x), x)[1], given_tree, is_leaf=is_leaf)
    assert_same(seen, expected)
    assert_identical(mapped, treedef.unflatten(expected))
    paths: list[Any] = []
    tree.map_with_path(lambda path, x: (paths.append((path, x)), x)[1], given_tree, is_leaf=is_leaf)
    wanted_paths, _ = jax.tree_util.tree_flatten_with_path(given_tree, is_leaf)
    assert [path for path, _ in paths] == [path for path, _ in wanted_paths]
    assert_same([x for _, x in paths], expected)


@over_is_leaf
@over_samples
def test_samples_are_read_and_made_as_by_jax(make: Callable[[], Any], is_leaf: Any) -> None:
    check(make(), is_leaf)


@thorough
@given(recipes, st.sampled_from(sorted(IS_LEAF)))
def test_random_trees_are_read_and_made_as_by_jax(recipe: Any, name: str) -> None:
    check(build(recipe, 1), IS_LEAF[name])


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[Any, Any]:
    recipe = draw(recipes)
    other = draw(st.one_of(st.just(recipe), variants(recipe)))
    assume("nan" not in f"{recipe}{other}")  # one made anew is the same one, and another one for jax
    return recipe, other


@thorough
@given(neighbours(), st.sampled_from(sorted(IS_LEAF)))
def test_two_trees_are_mapped_and_compared_as_by_jax(recipes_of_two: tuple[Any, Any], name: str) -> None:
    one, other = build(recipes_of_two[0], 1), build(recipes_of_two[1], 2)
    is_leaf = IS_LEAF[name]
    found, expected = (
        outcome(lambda map=map: map(lambda *xs: xs, one, other, one, is_leaf=is_leaf))
        for map in (tree.map, jax.tree.map)
    )
    if isinstance(expected, type):
        assert found is expected
    else:
        assert_identical(found, expected)
    alike = outcome(lambda: jax.tree.structure(one) == jax.tree.structure(other))
    assert outcome(lambda: tree.structure(one) == tree.structure(other)) == alike


def test_the_others_may_have_subtrees_where_the_first_has_leaves() -> None:
    first = {"a": 1, "b": [2, (3,)]}
    others = {"a": [1, None], "b": [None, ({"x": 1},)]}, {"a": "A", "b": ["B", ("C",)]}
    assert tree.map(lambda *xs: xs, first, *others) == jax.tree.map(lambda *xs: xs, first, *others)
    state = [(array(1), None), Pair(1, 2)]
    assert tree.map(lambda x, s: s, [1, 2], state)[1] is state[1]


def test_a_leaf_or_a_none_beside_something_else_is_told_by_path() -> None:
    for one, other, message in (
        ([1, [2]], [1, 2], "[1]`: found a `int`, expected "),
        ({"x": (1, None)}, {"x": (1, 2)}, "['x'][1]`: found a `int`, expected None, as tree has here"),
        ({"x": (1, [2])}, {"x": (1, None)}, "['x'][1]`: found "),
    ):
        with pytest.raises(ValueError) as caught:
            tree.map_with_path(lambda *_: 0, one, other)
        assert str(caught.value).startswith(f"`rest[0]{message}"), caught.value


def test_what_f_raises_has_the_path() -> None:
    def f(path: Any, x: Any) -> Any:
        raise KeyError(x)

    with pytest.raises(KeyError) as caught:
        tree.map_with_path(f, {"a": [Tray(1, 2)]})
    assert caught.value.__notes__ == ["partax: raised while mapping over `tree['a'][0].top`"]


def test_what_is_no_structure_and_another_number_of_leaves_is_an_error() -> None:
    structure: Any = tree.structure([1, 2])
    for count in (0, 1, 3):
        with pytest.raises(ValueError, match=f"found {count}, expected the 2 of the structure"):
            tree.unflatten(structure, [1] * count)
    with pytest.raises(TypeError, match="`structure`: found a `list`"):
        tree.unflatten([1], [1])
    with pytest.raises(TypeError):
        tree.unflatten(structure, 1)


def test_aux_data_need_not_be_hashable_and_may_refuse_to_be_compared() -> None:
    Refuses = type("Refuses", (), {"__eq__": lambda self, other: 1 / 0, "__hash__": None})
    one, other = tree.structure(Bag(1, label=Refuses())), tree.structure(Bag(1, label=Refuses()))
    assert hash(one) == hash(other)
    with pytest.raises(TypeError, match="by `==` raised") as caught:
        assert one == other
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_structure_is_printed_copied_and_pickled() -> None:
    structure = tree.structure({"a": [1, (2, None)], "b": Cell(3, mode="x")})
    assert repr(structure) == "Structure({'a': [*, (*, None)], 'b': Cell(weight=*, bias=None, mode='x')})"
    assert copy.deepcopy(structure) is structure is copy.copy(structure)
    assert pickle.loads(pickle.dumps(structure)) == structure
    assert type(structure) is tree.Structure


def test_a_structure_is_a_static_value() -> None:
    traces: list[Any] = []

    @partax.filter_jit
    def f(structure: Any, x: jax.Array) -> Any:
        traces.append(structure)
        return tree.unflatten(structure, [x, x + 1])

    for make in (lambda: [1, 2], lambda: [1, 2], lambda: (1, 2)):
        got = f(tree.structure(make()), jnp.ones(()))
        assert type(got) is type(make()) and got[1] == 2
    assert len(traces) == 2


def test_a_class_that_is_registered_late() -> None:
    late = type("Late", (), {})()
    assert tree.leaves([late]) == [late]
    jax.tree_util.register_pytree_node(type(late), lambda it: ((1,), None), lambda _, children: children[0])
    assert tree.leaves([late]) == [1] and tree.map(lambda x: x + 1, late) == 2
