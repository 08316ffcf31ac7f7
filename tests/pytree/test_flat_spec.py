"""Guards the promise that a FlatSpec and a Static are values: immutable, hashed and compared by the static rules,
copied, pickled and freed as such; and pytrees without leaves, for which a call retraces exactly when they differ."""

import copy
import pickle
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from conftest import TraceCounter
from growth import Witness
from partax import filter_jit, flat_combine, flat_partition, is_array
from partax.tree import FlatSpec, Static
from static_values import IN_AUX
from trees import Bag, Config, array, assert_close, double, make_model


def as_leaf(value: Any) -> FlatSpec:
    """A spec with the value in its static part: a leaf where it can be one."""
    return flat_partition({"x": jnp.ones(2), "leaf": value}, jax.Array, rest="static")[0]


def as_aux(value: Any) -> FlatSpec:
    """A spec of a tree with the value in a node's aux data."""
    return flat_partition(Bag(jnp.ones(2), label=value))[0]


over_wrappers = pytest.mark.parametrize("wrap", [Static, as_leaf, as_aux])


@over_wrappers
def test_values_are_equal_and_hash_alike_where_no_program_can_tell_them_apart_and_only_there(wrap: Any) -> None:
    values = {name: (wrap(make()), wrap(make())) for name, make in IN_AUX.items()}
    for name, (left, again) in values.items():
        assert (left == again) is True and (left != again) is False and hash(left) == hash(again)
        assert jax.tree.structure(left) == jax.tree.structure(again)
        for other, (right, _) in values.items():
            assert (left == right) is (name == other), (name, other)
            assert (left != right) is (name != other)
    assert len({it for both in values.values() for it in both}) == len(values)


def test_the_separator_and_which_leaves_are_static_are_part_of_the_spec() -> None:
    assert len({flat_partition([1, 1], separator=separator)[0] for separator in (None, "/", ".")}) == 3
    left, right = (flat_partition([1, 1], mask, rest="static")[0] for mask in ([True, False], [False, True]))
    assert left != right and left.paths == ("[0]",) and right.paths == ("[1]",)


def test_static_shows_its_value() -> None:
    for value in ((1, "a"), None, 2.5, Config(1), [1, 2]):
        assert Static(value).value == value and repr(Static(value)) == f"Static({value!r})"
    assert Static(double).value is double and repr(Static(double)) == "Static(double)"
    assert Static(Static(1)).value == Static(1) != Static(Static(1))


def test_copies_of_a_spec_are_the_spec_itself() -> None:
    for spec in (as_leaf(object()), as_aux(1)):
        assert copy.copy(spec) is spec is copy.deepcopy([spec, [spec]])[1][0]


@over_wrappers
def test_they_pickle_if_their_values_do(wrap: Any) -> None:
    for name, make in IN_AUX.items():
        wrapped = wrap(make())
        again = pickle.loads(pickle.dumps(wrapped))
        assert type(again) is type(wrapped)
        assert again == wrapped and hash(again) == hash(wrapped), name
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        pickle.dumps(wrap(lambda: 1))


def test_a_spec_keeps_its_static_part_and_nothing_else_alive(collect: Any) -> None:
    in_dict, static, aux = Witness(), Witness(), Witness()
    tree = Bag(in_dict, static, array(2), label=aux)
    weak = [weakref.ref(x) for x in (tree, in_dict, tree.items[2], static, aux)]
    held = id(static)
    spec, taken = flat_partition(tree, lambda x: id(x) != held, rest="static")
    del tree, in_dict, static, aux, taken
    collect()
    assert [ref() is not None for ref in weak] == [False, False, False, True, True]
    assert len(spec.paths) == 2
    del spec
    collect()
    assert [ref() for ref in weak] == [None] * 5


@pytest.mark.parametrize("jit", [jax.jit, filter_jit], ids=["jax.jit", "filter_jit"])
@over_wrappers
def test_equal_ones_share_a_trace_and_different_ones_do_not(jit: Any, wrap: Any, traces: TraceCounter) -> None:
    @jit
    def f(x: jax.Array, wrapped: Any) -> Any:
        traces.tick()
        return x + 1, wrapped

    some = [*IN_AUX.values()][::3]
    for make in [*some, *some]:
        for _ in range(2):
            out, same = f(jnp.float32(1), wrap(make()))
            assert out == 2 and type(same) is type(wrap(make()))
            assert same == wrap(make()) and hash(same) == hash(wrap(make()))
    assert traces.count == len(some)


@pytest.mark.parametrize("jit", [jax.jit, filter_jit], ids=["jax.jit", "filter_jit"])
def test_a_static_has_a_snapshot_of_a_mutable_value(jit: Any) -> None:
    f = jit(lambda x, s: x + len(repr(s.value)))
    value: Any = ([1], {"k": [2]})
    first = Static(value)
    f(1.0, first)
    value[1]["k"].append(3)
    for static in (first, Static(value), Static(([1], {"k": [2]})), first):
        assert f(1.0, static) == 1.0 + len(repr(static.value))
    assert first == Static(([1], {"k": [2]})) != Static(value)


def test_vmap_grad_scan_and_checkpoint_take_them() -> None:
    spec, arrays = flat_partition(make_model(), is_array, rest="static")
    x = array(4, 3)

    def loss(arrays: Any, spec: FlatSpec, static: Static, x: jax.Array) -> jax.Array:
        return flat_combine(spec, arrays)(x).sum() * static.value

    out = jax.vmap(loss, in_axes=(None, None, None, 0))(arrays, spec, Static(2), x)
    assert_close(out, jnp.stack([make_model()(row).sum() * 2 for row in x]))
    assert jax.grad(jax.checkpoint(loss))(arrays, spec, Static(2), x[0]).keys() == arrays.keys()
    (_, last), _ = jax.lax.scan(lambda c, row: ((c[0], c[1]), row.sum()), (x[0], spec), x)
    assert last == spec
    assert jax.eval_shape(lambda s: s, Static("x")) == Static("x")
