"""Guards the promise that what people get wrong often is told with the place in their own argument and the remedy."""

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax
from page_tables import cases
from partax import by_path

MODEL = eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(0))
X = jnp.ones(2)
TREE = {"layers": [{"w": jnp.ones(2)}, {"w": jnp.ones(3)}], "name": "n"}


def loss(model: Any, x: Any) -> Any:
    return jnp.sum(model(x))


def with_aux(model: Any, x: Any) -> Any:
    return loss(model, x), {"accuracy": 1}


# What is called of partax, the error, and words that its message has.
MISTAKES = cases("""
apply_updates(TREE, {"layers": [{"w": X}], "name": None})
    ValueError; `updates['layers']`; 1 child; which has a `list` with 2 children
apply_updates(TREE, {"layers": [{"w": X}, {"v": X}], "name": None})
    ValueError; `updates['layers'][1]`; ['v']; ['w']
apply_updates(TREE, X)
    ValueError; `updates`; found an array; `dict`
apply_updates({"a": [1, jnp.ones(3)]}, {"a": [None, jnp.ones(4)]})
    TypeError; `updates['a'][1]`; float32[4]; float32[3]
filter_grad(loss, wrt="layers")(MODEL, X)
    ValueError; wrt='layers'; wrt=by_path('layers/**')
filter_value_and_grad(loss, wrt=0)(MODEL, X)
    ValueError; wrt=0; no argument's number
filter_grad(with_aux)(MODEL, X)
    TypeError; with_aux(); has_aux=True
tree.at(lambda t: t["layers"][0]["w"] + 1, TREE, 3)
    TypeError; `where`; computes with a leaf; lambda tree:
tree.at(lambda t: t["layers"][0]["w"][0], TREE, 3)
    TypeError; `where`; looks into one
tree.at(lambda t: "layers", TREE, 3)
    TypeError; 'layers' is not a leaf; `where`
tree.at(lambda t: (t["layers"][0], t["layers"][1]), TREE, (3,))
    ValueError; `replace`; 2 nodes and 1
save(TREE, "model.safetensors")
    TypeError; `path`; `dict`; save(path, tree)
load(MODEL, "model.safetensors")
    TypeError; `path`; `MLP`; load(path, like)
tree.at(TREE, lambda t: t["name"], 3)
    TypeError; `where`; found a `dict`; expected a function of the tree
tree.stack({"a": X})
    ValueError; `layers`; found a `dict`; a list
doctor(loss, MODEL, X, memory_limit="8 MiB")
    TypeError; memory_limit='8 MiB'; number of bytes
doctor(loss, MODEL, X, memory_limit=-1)
    TypeError; memory_limit=-1; number of bytes
""")


@pytest.mark.parametrize("call", MISTAKES)
def test_the_error_names_the_place_and_the_remedy(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if call.startswith(("save(", "load(")):
        pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    error, *words = MISTAKES[call].strip().split("; ")
    with pytest.raises(getattr(builtins, error)) as caught:
        eval(f"partax.{call}")
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert list(tmp_path.iterdir()) == []  # nothing is half done


def test_updates_that_fit_are_added_by_the_user_s_own_rules() -> None:
    class Refuses:
        def __radd__(self, part: Any) -> Any:
            raise ValueError("not today")

    with pytest.raises(ValueError, match=r"`updates\['a'\]`: .*not today"):
        partax.apply_updates({"a": 1, "b": X}, {"a": Refuses(), "b": X})


def notes(error: BaseException) -> list[str]:
    return [note for note in getattr(error, "__notes__", ()) if note.startswith("partax")]


SIZED = [jnp.zeros, jnp.arange, lambda n: X.reshape(n, 1), jnp.eye, lambda n: X[:n], lambda n: jnp.tile(X[:1], n)]


@pytest.mark.parametrize("body", [*SIZED, lambda n: jnp.stack([X[0] for _ in range(n)])])
def test_an_array_where_a_size_is_wanted(body: Callable[[Any], Any]) -> None:
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
        (lambda glob: partax.filter(MODEL, partax.is_array & by_path(glob)), "layer/0/weight"),
    ],
)
def test_a_filter_by_path_that_takes_nothing_warns_once(use: Callable[[str], Any], glob: str) -> None:
    with pytest.warns(UserWarning, match="layers/0/weight") as caught:
        use(glob)
    use(glob)  # a second warning would be an error
    assert len(caught) == 1 and caught[0].filename == __file__ and repr(glob) in str(caught[0].message)


NOTHING: list[tuple[Any, Any]] = [
    (MODEL, str),
    (MODEL, False),
    (MODEL, ~by_path("**")),
    (MODEL, by_path("layers/0/weight") & str),  # the path takes something; the other nothing of it
    ({}, by_path("a_name_in_no_tree")),
]


@pytest.mark.parametrize(("given", "takes"), NOTHING)
def test_other_filters_take_nothing_in_silence(given: Any, takes: Any) -> None:
    assert jax.tree.leaves(partax.filter(given, takes)) == []
