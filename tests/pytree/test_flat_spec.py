"""Guards the promise that a FlatSpec and a Static are values: immutable, hashed and compared by the static rules,
copied, pickled and freed as such; and pytrees without leaves, for which a call retraces exactly when they differ;
that flat_partition gives plain dictionaries from path to leaf, each with its own leaves in tree order, and that
flat_combine makes the tree of them again or says which keys are wrong."""

import copy
import dataclasses
import pickle
import re
import weakref
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from conftest import TraceCounter
from growth import Witness
from partax import filter_jit, flat_combine, flat_partition, is_array
from partax.tree import FlatSpec, Static
from partition_reference import assert_identical
from static_values import IN_AUX
from trees import Bag, Config, Pair, array, assert_close, double, make_model

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose


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


# ---- The dictionaries.


def test_keys_as_users_read_them() -> None:
    tree = {"m": make_model(1), "p": Pair((1, 2), [array(1)])}
    _, dict_of_all = flat_partition(tree)
    assert list(dict_of_all)[2:] == ["['m'].layers[0].rate", "['p'].left[0]", "['p'].left[1]", "['p'].right[0]"]
    _, dict_of_all = flat_partition(make_model(1), separator="/")
    assert list(dict_of_all) == ["layers/0/weight", "layers/0/bias", "layers/0/rate"]
    for separator in (None, "/", ""):
        assert list(flat_partition(array(1), separator=separator)[1]) == [""]


def test_dictionaries_are_plain_and_the_user_s_own_and_new_leaves_may_be_anything() -> None:
    tree = make_model()
    spec, arrays, rest = flat_partition(tree, is_array)
    assert type(arrays) is type(rest) is dict
    arrays.clear()
    rest["new"] = 1
    again, arrays, rest = flat_partition(tree, is_array)
    assert len(arrays) == 4 and len(rest) == 2 and again == spec
    assert_identical(flat_combine(spec, arrays, rest), tree)
    values: dict[str, Any] = dict.fromkeys(arrays, None) | {".layers[0].weight": [1, {"sub": "tree"}]}
    made = flat_combine(spec, values, rest)
    assert made.layers[0].weight is values[".layers[0].weight"]
    assert made.layers[1].weight is None and made.layers[1].rate == 0.5
    assert type(made) is type(tree) and made.name == "model"


def test_the_rest_in_the_spec_is_not_asked_for() -> None:
    tree = make_model()
    spec, arrays = flat_partition(tree, is_array, rest="static")
    with pytest.raises(KeyError, match=re.escape(".layers[0].rate")):
        flat_combine(spec, arrays, {".layers[0].rate": 1.0})
    with pytest.raises(KeyError, match=re.escape(".layers[0].weight")):
        flat_combine(spec)


def test_what_is_no_way_to_keep_the_rest() -> None:
    for rest in ("list", "", None, True, dict, "Static"):
        with pytest.raises((ValueError, TypeError), match="rest"):
            flat_partition([1], rest=rest)
    wrong: Any
    for wrong in ({"separator": 1}, {"separator": b"/"}, {"filters": (int,)}):
        with pytest.raises((TypeError, ValueError)):
            flat_partition([1], **wrong)


@dataclasses.dataclass(frozen=True, order=True)
class SameText:
    """Different keys that print alike."""

    number: int

    def __repr__(self) -> str:
        return "same"


class Twins:
    """Its children all have one key."""

    def __init__(self, *items: Any) -> None:
        self.items = items


_X = jax.tree_util.GetAttrKey("x")
jax.tree_util.register_pytree_with_keys(
    Twins, lambda twins: ([(_X, item) for item in twins.items], None), lambda _, items: Twins(*items)
)
# A tree, a separator, and the keys and leaves.
ALIKE: list[tuple[Any, str | None, dict[str, Any]]] = [
    (Twins(1, 2, 3), None, {".x": 1, ".x#2": 2, ".x#3": 3}),
    (Twins([1, 2], [3]), None, {".x[0]": 1, ".x[1]": 2, ".x[0]#2": 3}),
    ({SameText(0): 1, SameText(1): 2}, None, {"[same]": 1, "[same]#2": 2}),
    ({"a": {"b": 1}, "a/b": 2}, "/", {"a/b": 1, "a/b#2": 2}),
    (["x", {"": "y"}, ["z"]], "", {"0": "x", "1": "y", "20": "z"}),
    (OrderedDict([(1, "a"), ("1", "b"), ("1#2", "c")]), "/", {"1": "a", "1#3": "b", "1#2": "c"}),
]


@pytest.mark.parametrize(("tree", "separator", "expected"), ALIKE)
def test_keys_that_are_alike_are_told_apart(tree: Any, separator: str | None, expected: dict[str, Any]) -> None:
    spec, leaves = flat_partition(tree, separator=separator)
    assert list(leaves.items()) == list(expected.items()) and spec.paths == tuple(expected)
    made = flat_combine(spec, {key: [value] for key, value in reversed(leaves.items())})
    assert jax.tree.leaves(made) == list(expected.values())


def test_all_wrong_keys_are_in_one_error_with_the_nearest_path() -> None:
    spec, arrays, rest = flat_partition(make_model(), is_array, separator="/")
    arrays["layers/0/wieght"] = arrays.pop("layers/0/weight")
    with pytest.raises(KeyError) as caught:
        flat_combine(spec, arrays, rest, {"zzz": 1, "layers/0/bias": 2})
    message = str(caught.value)
    for word in ("layers/0/wieght", "zzz", "layers/0/bias", "missing", "unexpected", "duplicate"):
        assert word in message.lower()
    assert message.count("layers/0/weight") >= 2  # missing, and the nearest of the typo
    assert "layers/1/bias" not in message
