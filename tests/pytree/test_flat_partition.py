"""Guards the promise that flat_partition gives plain dictionaries from path to leaf, each with its own leaves in tree
order, and that flat_combine makes the tree of them again or says which keys are wrong."""

import dataclasses
import re
from collections import OrderedDict
from typing import Any

import jax
import pytest

from partax import flat_combine, flat_partition, is_array
from partition_reference import assert_identical
from trees import Pair, array, make_model

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose


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
