"""Guards the promise that the error for a common mistake names the place in the user's own argument and the remedy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax
from partax import apply_updates, by_path, filter_grad, filter_value_and_grad, tree

MODEL = eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(0))
X = jnp.ones(2)
TREE: Any = {"layers": [{"w": jnp.ones(2)}, {"w": jnp.ones(3)}], "name": "n"}


def loss(model: Any, x: Any) -> Any:
    return jnp.sum(model(x))


def loss_and_aux(model: Any, x: Any) -> Any:
    return loss(model, x), {"accuracy": 1}


def assert_error(error: type[Exception], call: Callable[[], Any], *words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def test_updates_that_do_not_fit() -> None:
    updates: Any = {"layers": [{"w": X}], "name": None}
    text = "which has a `list` with 1 child"
    assert_error(ValueError, lambda: apply_updates(TREE, updates), "`model['layers']`", "2 children", text)
    updates = {"layers": [{"w": X}, {"v": X}], "name": None}
    assert_error(ValueError, lambda: apply_updates(TREE, updates), "`model['layers'][1]`", "['v']", "['w']")
    assert_error(TypeError, lambda: apply_updates(TREE, X), "`updates`", "found float32", "{'layers'")
    call = lambda: apply_updates({"a": [1, jnp.ones(3)]}, {"a": [None, jnp.ones(4)]})
    assert_error(TypeError, call, "`updates['a'][1]`", "float32[4]", "float32[3]")


def test_a_wrong_wrt_and_a_loss_with_aux() -> None:
    wrong = ("wrt='layers'", "wrt=by_path('layers/**')")
    assert_error(ValueError, lambda: filter_grad(loss, wrt="layers")(MODEL, X), *wrong)
    assert_error(ValueError, lambda: filter_value_and_grad(loss, wrt=0)(MODEL, X), "wrt=0", "no argument's number")
    assert_error(TypeError, lambda: filter_grad(loss_and_aux)(MODEL, X), "loss_and_aux()", "has_aux=True")


def test_a_where_that_is_not_a_node() -> None:
    words = ("`where`", "computes with a leaf", "lambda tree:")
    assert_error(TypeError, lambda: tree.at(lambda t: t["layers"][0]["w"] + 1, TREE, 3), *words)
    assert_error(TypeError, lambda: tree.at(lambda t: t["layers"][0]["w"][0], TREE, 3), "`where`", "looks into one")
    assert_error(TypeError, lambda: tree.at(lambda t: "layers", TREE, 3), "'layers' is not a leaf", "`where`")
    two = lambda: tree.at(lambda t: (t["layers"][0], t["layers"][1]), TREE, (3,))
    assert_error(ValueError, two, "`replace`", "2 nodes and 1")
    words = ("`where`", "found a `dict`", "expected a function of the tree")
    assert_error(TypeError, lambda: tree.at(TREE, lambda t: t["name"], 3), *words)


def test_arguments_of_another_type() -> None:
    assert_error(ValueError, lambda: tree.stack({"a": X}), "`layers`", "found a `dict`", "a list")
    for limit in ("8 MiB", -1):
        call = lambda limit=limit: partax.doctor(loss, MODEL, X, memory_limit=limit)
        assert_error(TypeError, call, f"memory_limit={limit!r}", "number of bytes")


def test_save_and_load_name_arguments_in_the_wrong_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=r"(?s)`path`.*`dict`.*save\(path, tree\)"):
        partax.save(TREE, "model.safetensors")
    with pytest.raises(TypeError, match=r"(?s)`path`.*`MLP`.*load\(path, like\)"):
        partax.load(MODEL, "model.safetensors")
    assert list(tmp_path.iterdir()) == []  # nothing is half done


def test_an_error_of_the_addition_of_an_update_has_the_path() -> None:
    class Refuses:
        def __radd__(self, part: Any) -> Any:
            raise ValueError("not today")

    with pytest.raises(ValueError, match=r"`updates\['a'\]`: .*not today"):
        apply_updates({"a": 1, "b": X}, {"a": Refuses(), "b": X})


def notes(error: BaseException) -> list[str]:
    return [note for note in getattr(error, "__notes__", ()) if note.startswith("partax")]


@pytest.mark.parametrize("body", [jnp.zeros, lambda n: X.reshape(n, 1), lambda n: X[:n], lambda n: jnp.tile(X[:1], n)])
def test_an_array_instead_of_a_size(body: Callable[[Any], Any]) -> None:
    inner = partax.filter_jit(lambda n: body(n))
    for call in (inner, partax.filter_jit(lambda n: inner(n))):
        with pytest.raises((TypeError, IndexError)) as caught:
            call(jnp.asarray(2))
        (note,) = notes(caught.value)
        assert "pass a Python number" in note
    assert inner(2).shape[0] == 2


def test_another_type_error_has_no_note() -> None:
    with pytest.raises(TypeError) as caught:
        partax.filter_jit(lambda x: x + "a")(X)
    assert notes(caught.value) == []


@pytest.mark.parametrize(
    ("use", "glob"),
    [
        (lambda glob: partax.filter(MODEL, by_path(glob)), "layers.0.weight"),
        (lambda glob: partax.partition(MODEL, by_path(glob)), "layers[0].weight"),
        (lambda glob: partax.flat_partition(MODEL, by_path(glob)), ".layers[0].weight"),
        (lambda glob: filter_grad(loss, wrt=by_path(glob))(MODEL, X), "model.layers.0.weight"),
        (lambda glob: partax.filter(MODEL, partax.is_array & by_path(glob)), "layer/0/weight"),
    ],
)
def test_a_filter_by_path_that_matches_nothing_warns_once(use: Callable[[str], Any], glob: str) -> None:
    with pytest.warns(UserWarning, match="layers/0/weight") as caught:
        use(glob)
    use(glob)  # a second warning would be an error
    assert len(caught) == 1 and caught[0].filename == __file__ and repr(glob) in str(caught[0].message)


@pytest.mark.parametrize(
    ("argument", "leaf_filter"),
    [
        (MODEL, str),
        (MODEL, False),
        (MODEL, ~by_path("**")),
        (MODEL, by_path("layers/0/weight") & str),  # the path matches a leaf, which is not a string
        ({}, by_path("a_name_in_no_tree")),
    ],
)
def test_other_filters_match_nothing_without_a_warning(argument: Any, leaf_filter: Any) -> None:
    assert jax.tree.leaves(partax.filter(argument, leaf_filter)) == []
