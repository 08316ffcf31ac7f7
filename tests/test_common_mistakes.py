"""Guards the promise that what people get wrong often is told with the place in their own argument and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import by_path

MODEL = eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(0))
X = jnp.ones(2)
TREE = {"layers": [{"w": jnp.ones(2)}, {"w": jnp.ones(3)}], "name": "n"}


def loss(model: Any, x: Any) -> Any:
    return jnp.sum(model(x))


def with_aux(model: Any, x: Any) -> Any:
    return loss(model, x), {"accuracy": 1}


# What is called, the error, and words that its message has.
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], list[str]]] = {
    "updates of another length": (
        lambda: partax.apply_updates(TREE, {"layers": [{"w": jnp.ones(2)}], "name": None}),
        ValueError,
        ["`updates['layers']`", "1 child", "which has a `list` with 2 children"],
    ),
    "updates with another key": (
        lambda: partax.apply_updates(TREE, {"layers": [{"w": X}, {"v": X}], "name": None}),
        ValueError,
        ["`updates['layers'][1]`", "['v']", "['w']"],
    ),
    "an array in the place of updates": (
        lambda: partax.apply_updates(TREE, jnp.ones(2)),
        ValueError,
        ["`updates`", "found an array", "`dict`"],
    ),
    "updates of another shape": (
        lambda: partax.apply_updates({"a": [1, jnp.ones(3)]}, {"a": [None, jnp.ones(4)]}),
        TypeError,
        ["`updates['a'][1]`", "float32[4]", "float32[3]"],
    ),
    "wrt by a name": (
        lambda: partax.filter_grad(loss, wrt="layers")(MODEL, X),
        ValueError,
        ["wrt='layers'", "wrt=by_path('layers/**')"],
    ),
    "wrt by a number": (
        lambda: partax.filter_value_and_grad(loss, wrt=0)(MODEL, X),
        ValueError,
        ["wrt=0", "no argument's number"],
    ),
    "has_aux forgotten": (lambda: partax.filter_grad(with_aux)(MODEL, X), TypeError, ["with_aux()", "has_aux=True"]),
    "at: a computed value": (
        lambda: partax.tree.at(lambda t: t["layers"][0]["w"] + 1, TREE, 3),
        TypeError,
        ["`where`", "computes with a leaf", "lambda tree:"],
    ),
    "at: inside of a leaf": (
        lambda: partax.tree.at(lambda t: t["layers"][0]["w"][0], TREE, 3),
        TypeError,
        ["`where`", "looks into one"],
    ),
    "at: a leaf of another tree": (
        lambda: partax.tree.at(lambda t: "layers", TREE, 3),
        TypeError,
        ["'layers' is not a leaf", "`where`"],
    ),
    "at: too few replacements": (
        lambda: partax.tree.at(lambda t: (t["layers"][0], t["layers"][1]), TREE, (3,)),
        ValueError,
        ["`replace`", "2 nodes and 1"],
    ),
    "save with its arguments swapped": (
        lambda: partax.save(TREE, "model.safetensors"),  # pyright: ignore[reportArgumentType]
        TypeError,
        ["`path`", "`dict`", "save(path, tree)"],
    ),
    "load with its arguments swapped": (
        lambda: partax.load(MODEL, "model.safetensors"),  # pyright: ignore[reportArgumentType]
        TypeError,
        ["`path`", "`MLP`", "load(path, like)"],
    ),
    "memory_limit with a unit": (
        lambda: partax.doctor(loss, MODEL, X, memory_limit="8 MiB"),  # pyright: ignore[reportArgumentType]
        TypeError,
        ["memory_limit='8 MiB'", "number of bytes"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_error_names_the_place_and_the_remedy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith(("save ", "load ")):
        pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    mistake, error, words = MISTAKES[name]
    with pytest.raises(error) as caught:
        mistake()
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert list(tmp_path.iterdir()) == []  # nothing is half done


def test_updates_that_fit_are_added_by_the_user_s_own_rules() -> None:
    class Refuses:
        def __radd__(self, part: Any) -> Any:
            raise ValueError("not today")

    with pytest.raises(ValueError, match=r"`updates\['a'\]`: .*not today"):
        partax.apply_updates({"a": 1, "b": X}, {"a": Refuses(), "b": X})


@pytest.mark.parametrize(
    "body", [lambda n: jnp.zeros(n), lambda n: jnp.arange(n), lambda n: X.reshape(n, 1), lambda n: jnp.eye(n)]
)
def test_an_array_where_a_size_is_wanted(body: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError) as caught:
        partax.filter_jit(body)(jnp.asarray(2))
    notes = [note for note in caught.value.__notes__ if note.startswith("partax")]
    assert len(notes) == 1 and "pass a Python number" in notes[0]
    assert partax.filter_jit(body)(2).shape[0] == 2


def test_the_note_comes_once_through_nested_functions() -> None:
    inner = partax.filter_jit(lambda n: jnp.zeros(n))
    with pytest.raises(TypeError) as caught:
        partax.filter_jit(lambda n: inner(n))(jnp.asarray(2))
    assert sum(note.startswith("partax") for note in caught.value.__notes__) == 1


def test_another_type_error_has_no_note() -> None:
    with pytest.raises(TypeError) as caught:
        partax.filter_jit(lambda x: x + "a")(X)
    assert not any(note.startswith("partax") for note in getattr(caught.value, "__notes__", ()))


def zipped(path: Path) -> None:
    with path.open("wb") as file:  # or NumPy adds a suffix
        np.savez(file, a=np.ones(2))


def numpys(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(2))


OTHER_FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "numpy.savez": (zipped, "a zip archive"),
    "numpy.save": (numpys, "a file of numpy.save"),
    "pickle": (lambda path: path.write_bytes(__import__("pickle").dumps(TREE["name"])), "a pickle"),
    "text": (lambda path: path.write_text("some text in a file"), "a file of another kind"),
}


@pytest.mark.parametrize("name", OTHER_FILES)
def test_a_file_of_another_kind(name: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    write, kind = OTHER_FILES[name]
    path = tmp_path / "model.safetensors"
    write(path)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.* found {kind}, .*expected a safetensors file"):
        partax.load(path, TREE)


def test_a_file_without_arrays_is_told(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / "model.safetensors"
    with pytest.warns(UserWarning, match="has no array") as caught:
        partax.save(path, {"name": "text", "rate": 0.1})
    assert caught[0].filename == __file__
    assert partax.load(path) == {}


@pytest.mark.parametrize(
    ("use", "glob"),
    [
        (lambda glob: partax.filter(MODEL, by_path(glob)), "layers.0.weight"),
        (lambda glob: partax.partition(MODEL, by_path(glob)), "layers[0].weight"),
        (lambda glob: partax.flat_partition(MODEL, by_path(glob)), ".layers[0].weight"),
        (lambda glob: partax.filter_grad(loss, wrt=by_path(glob))(MODEL, X), "model.layers.0.weight"),
        (lambda glob: partax.filter(MODEL, partax.all_of(partax.is_array, by_path(glob))), "layer/0/weight"),
    ],
)
def test_a_filter_by_path_that_takes_nothing_warns_once(use: Callable[[str], Any], glob: str) -> None:
    with pytest.warns(UserWarning, match="layers/0/weight") as caught:
        use(glob)
    use(glob)  # a second warning would be an error
    assert len(caught) == 1 and caught[0].filename == __file__ and repr(glob) in str(caught[0].message)


def test_other_filters_take_nothing_in_silence() -> None:
    assert jax.tree.leaves(partax.filter(MODEL, str)) == []
    assert jax.tree.leaves(partax.filter(MODEL, False)) == []
    assert jax.tree.leaves(partax.filter(MODEL, partax.not_(by_path("**")))) == []
    assert jax.tree.leaves(partax.filter({}, by_path("a_name_in_no_tree"))) == []
    # The path takes something; the other member takes nothing of it.
    assert jax.tree.leaves(partax.filter(MODEL, partax.all_of(by_path("layers/0/weight"), str))) == []
