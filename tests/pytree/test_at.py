"""Guards the promise that partax.tree.at and equal are those of Equinox, with errors of the same kind; and that
partition, filter, combine, apply_updates and the gradients take what Equinox's take."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import partax
import partax.equinox
from partax import by_path, is_array, tree
from partition_reference import assert_identical
from random_trees import Tag
from transformed import assert_close_trees
from trees import Cell, Layer, Pair, array, double, make_model, network

SHARED = array(2)


def both(where: Callable[[Any], Any], given_tree: Any, **options: Any) -> Any:
    """What both give, or the type of what both raise."""
    results = []
    for at in (tree.at, eqx.tree_at):
        try:
            results.append(at(where, given_tree, **options))
        except Exception as error:
            results.append(type(error))
    found, expected = results
    if isinstance(expected, type):
        assert found is expected
    else:
        assert_identical(found, expected)
    return found


def is_none(x: Any) -> bool:
    return x is None


NEW = object()
GIVEN: dict[str, tuple[Callable[[Any], Any], Any, dict[str, Any]]] = {
    "in a NamedTuple": (lambda t: Pair(t[0], t[1]), [array(1), array(2)], {"replace": (1, 2)}),
    "shared array": (lambda t: t[1], [SHARED, SHARED], {"replace": NEW}),
    "empty tuple inside": (lambda t: t[2][0], [(), (), ((),)], {"replace": NEW}),
    "one None of two": (lambda t: t[0], [None, None], {"replace": NEW}),
    "one None of two, as leaves": (lambda t: t[0], [None, None], {"replace": NEW, "is_leaf": is_none}),
    "below a leaf": (lambda t: t[1][0], [(1, 2), (1, 2)], {"replace": NEW, "is_leaf": lambda x: type(x) is tuple}),
    "twice": (lambda t: (t[0], t[0]), [array(1), 2], {"replace": (1, 2)}),
    "inside another": (lambda t: (t[0], t[0][0]), [[array(1)], 2], {"replace": (1, 2)}),
    "too few": (lambda t: (t[0], t[1]), [array(1), array(2)], {"replace": (1,)}),
    "static field that is a leaf too": (lambda t: t.mode, Cell(double, mode=double), {"replace": 1}),
    "by value": (lambda t: tuple(x for x in t if type(x) is int), [1, 2.0, 3], {"replace": (1, 2)}),
    "no replacement": (lambda t: t[0], [1, 2], {}),
    "two replacements": (lambda t: t[0], [1, 2], {"replace": 1, "replace_fn": lambda x: x}),
    "replace_fn of a node": (lambda t: t[0], [{"a": 1, "b": None}, 1], {"replace_fn": lambda x: [*x.values()]}),
    "replace_fn that raises": (lambda t: t[0], [1, 2], {"replace_fn": lambda x: x / 0}),
    "by what the leaves are": (lambda t: jax.tree.leaves(eqx.filter(t, eqx.is_array)), network(), {"replace": [1] * 8}),
}


@pytest.mark.parametrize(("where", "given_tree", "options"), GIVEN.values(), ids=GIVEN)
def test_it_does_what_equinox_does(where: Callable[[Any], Any], given_tree: Any, options: dict[str, Any]) -> None:
    both(where, given_tree, **options)


SPREAD = jax.device_put(array(16), NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x")))
NAN = float("nan")
f32 = np.float32
PAIRS: dict[str, tuple[Any, Any]] = {
    "other values": (array(3), array(3, start=1)),
    "near": (jnp.ones(2), jnp.ones(2) + 1e-6),
    "shape": (jnp.ones((1, 2)), jnp.ones((2, 1))),
    "dtype": (jnp.ones(2, "int32"), jnp.ones(2, "uint32")),
    "weak": (jnp.asarray(1.0), jnp.ones(())),
    "nan": (jnp.array([NAN]), jnp.array([NAN])),
    "zeros": (jnp.array([0.0, -0.0]), jnp.array([-0.0, 0.0])),
    "empty shape": (jnp.zeros((0, 2)), jnp.zeros((2, 0))),
    "other complex": (jnp.array([1 + 2j]), jnp.array([1 - 2j])),
    "bfloat16": (jnp.ones(3, "bfloat16"), jnp.array([1, 1, NAN], "bfloat16")),
    "int4": (jnp.ones(3, "int4"), jnp.ones(3, "int4")),
    "keys": (jax.random.key(0), jax.random.key(1)),
    "numpy dtype": (np.ones(3), np.ones(3, f32)),
    "numpy objects": (np.array([1, "a"], object), np.array([1, "a"], object)),
    "numpy and jax": (np.ones(3, f32), jnp.ones(3)),
    "jax and numpy": (jnp.ones(3), np.ones(3, f32)),
    "scalar and array": (np.float32(1), np.array(1, f32)),
    "number and array": (1.0, np.float64(1)),
    "structure": ([1], (1,)),
    "nodes": (Cell(1), Cell(1, mode="other")),
    "aux": (Tag(1), Tag(1.0)),
    "none": (None, 1),
    "on several devices": (SPREAD, SPREAD + 0),
    "other ones on several devices": (SPREAD, SPREAD + 1),
}
OPTIONS: list[dict[str, Any]] = [{}, {"typematch": True}, {"rtol": 1e-4}, {"atol": 1e-3}]


def check(*trees: Any, **options: Any) -> bool:
    expected = bool(eqx.tree_equal(*trees, **options))
    found = tree.equal(*trees, **options)
    assert type(found) is bool and found == expected
    return found


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS)
def test_pairs_are_equal_where_equinox_says_so(one: Any, other: Any) -> None:
    for options in OPTIONS:
        check(one, other, **options)
    check({"a": [1, one], "b": array(2)}, {"a": [1, other], "b": array(2)})


def test_one_and_many_trees() -> None:
    assert tree.equal(make_model()) is True
    assert tree.equal(make_model(), make_model(), make_model()) is True
    assert tree.equal(make_model(), make_model(), make_model(start=1.0)) is False
    with pytest.raises(TypeError, match="found no trees"):
        tree.equal()


def test_what_only_the_program_tells_is_traced() -> None:
    seen: list[Any] = []

    @jax.jit
    def f(x: jax.Array, y: jax.Array) -> Any:
        answers = [tree.equal([x, 1], [y, 1]), tree.equal([x, 1], [y, 2]), tree.equal([x], [y[:1]]), tree.equal(1, 1)]
        seen.extend(answers)
        return answers[0]

    assert f(jnp.ones(2), jnp.ones(2)) and not f(jnp.ones(2), jnp.zeros(2))
    assert isinstance(seen[0], jax.core.Tracer) and seen[1:] == [False, False, True]


# ---- Partition, updates and gradients.


def sample() -> Any:
    return {"a": [array(2), 1, None], "b": Pair("x", array(1)), "c": Layer(array(2), np.ones(1))}


def is_pair(node: Any) -> bool:
    return isinstance(node, Pair)


def test_replace_and_is_leaf_by_position() -> None:
    pytree, replace = sample(), object()
    assert_identical(partax.filter(pytree, is_array, True, 0, is_pair), eqx.filter(pytree, is_array, True, 0, is_pair))
    expected = eqx.partition(pytree, is_array, replace, is_pair)
    assert_identical(partax.equinox.partition(pytree, is_array, replace, is_pair), expected)
    assert_identical(partax.partition(pytree, is_array, replace=replace, is_leaf=is_pair), expected)
    with pytest.raises(TypeError, match=r"among the filters.*`replace=`"):
        partax.partition(pytree, is_array, None)


TRANSFORMS = [(getattr(partax, name), getattr(eqx, name)) for name in ("filter_grad", "filter_value_and_grad")]
Z = jnp.asarray(1 + 2j)


@pytest.mark.parametrize(("ours", "theirs"), TRANSFORMS)
def test_holomorphic(ours: Any, theirs: Any) -> None:
    def function(pytree: Any) -> Any:
        return pytree["z"] ** 2 * pytree["number"] * pytree["steps"]

    pytree = {"z": Z, "number": 2.0, "steps": jnp.arange(3)[1], "name": "x"}
    make = lambda f: f(function, holomorphic=True)
    assert_close_trees(make(ours)(pytree), make(theirs)(pytree))
    with pytest.raises(TypeError, match="holomorphic=True requires inputs with complex dtype"):
        make(ours)({**pytree, "number": jnp.float32(2)})
    only_z = ours(function, holomorphic=True, wrt=by_path("z"))({**pytree, "number": jnp.float32(2)})
    assert_close_trees(only_z, make(theirs)(pytree))
    with pytest.raises(TypeError, match="real-valued outputs"):
        ours(function)(pytree)


class Vector(eqx.Module):
    values: jax.Array

    def __add__(self, other):
        return Vector(self.values + other)


MLP = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
UPDATES = {
    "nothing": (MLP, None),
    "nothing of leaves and a subtree": ([jnp.ones(2), "text", len, None, {"a": MLP}], [None] * 5),
    "leaves": (
        (jnp.arange(3.0), [np.ones(2), 5, 2.5], Pair(1j, None)),
        (jnp.ones(3), [np.full(2, 2.0), 1, 0.5], Pair(2, None)),
    ),
    "a subtree": ([Vector(jnp.ones(2)), 3], [jnp.float32(2), None]),
    "a weak type": ({"w": jnp.ones(2, jnp.bfloat16)}, {"w": 0.5}),
}


@pytest.mark.parametrize(("model", "updates"), UPDATES.values(), ids=UPDATES)
def test_updates_are_added_as_by_equinox(model, updates):
    found, expected = (apply(model, updates) for apply in (partax.apply_updates, eqx.apply_updates))
    assert eqx.tree_equal(found, expected, typematch=True)
    for own, one, other in zip(*map(jax.tree.leaves, (model, found, expected)), strict=True):
        assert (one is own) is (other is own)


def test_updates_that_are_not_a_prefix_are_a_value_error():
    for model, updates in [([1, 2], [1]), ([1], (1,)), ({"a": 1}, {"b": 1}), (1, [1])]:
        for apply in (partax.apply_updates, eqx.apply_updates):
            with pytest.raises(ValueError):
                apply(model, updates)
    with pytest.raises(TypeError, match=r"unsupported operand|can only concatenate"):
        partax.apply_updates(["text"], [1])
