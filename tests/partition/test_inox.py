"""Guards the promise that flat_partition gives the keys and leaves of Inox: its documented examples, and trees of every
family. Inox asks its predicates about nodes too; there partax has types and paths."""

from __future__ import annotations

from typing import Any

import inox
import inox.nn as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from partax import all_of, by_path, filter_jit, flat_combine, flat_partition, is_array
from partition_reference import assert_identical, assert_identical_dicts
from trees import SAMPLES, Bag, Cell, Layer, Pair, Tray, assert_close


def namespace() -> Any:
    """The tree of the docstrings of `inox.tree.partition` and `inox.tree.combine`."""
    return inox.tree.Namespace(a=1, b=jnp.arange(2), c=["three", False])


def layers() -> Any:
    """The model of the docstring of `inox.nn.Module.partition`."""
    keys = jax.random.split(jax.random.key(0), 2)
    return nn.Module(
        layers=[nn.Linear(3, 64, key=keys[0]), nn.ReLU(), nn.TrainingDropout(), nn.Linear(64, 5, key=keys[1])]
    )


class MLP(nn.Module):
    """The model of Inox's README, with the attributes that are added there."""

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.l1 = nn.Linear(3, 64, key=keys[0])
        self.l2 = nn.Linear(64, 64, key=keys[1])
        self.l3 = nn.Linear(64, 3, key=keys[2])
        self.relu = nn.ReLU()

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.l3(self.relu(self.l2(self.relu(self.l1(x)))))


def mlp() -> Any:
    model = MLP(jax.random.key(0))
    model.name = "stainless"
    model.mask = jnp.array([1, 0, 1])
    return model


class Shared(nn.Scope):
    """A model with tied layers, as in the documentation of `inox.nn.share`."""

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.l1 = nn.Reference("l1", nn.Linear(4, 4, key=keys[0]))
        self.l2 = self.l1
        self.l3 = nn.Linear(4, 4, key=keys[1])
        self.l4 = nn.Linear(4, 4, key=keys[2])
        self.l3.weight = nn.Reference("l3.weight", self.l3.weight)
        self.l4.weight = self.l3.weight
        self.relu = nn.ReLU()


MODELS = {"namespace": namespace, "layers": layers, "mlp": mlp, "shared": lambda: Shared(jax.random.key(0))}
FILTERS: dict[str, tuple[Any, ...]] = {
    "none": (),
    "arrays": (jax.Array,),
    "parameters": (nn.Parameter,),
    "nested types": (nn.Linear, nn.Parameter),
    "nested types, the inner first": (nn.Parameter, nn.Linear, jax.Array),
    "namespaces": (inox.tree.Namespace,),
    "containers": (list, dict, str),
}


def assert_same_as_inox(tree: Any, filters: tuple[Any, ...]) -> None:
    spec, *found = flat_partition(tree, *filters)
    _, *expected = inox.tree.partition(tree, *filters)
    assert len(found) == len(expected)
    for one, wanted in zip(found, expected, strict=True):
        assert_identical_dicts(one, wanted)
    assert jax.tree.structure(flat_combine(spec, *found)) == jax.tree.structure(tree)


# --- the documented examples, word by word


def test_the_example_of_partition() -> None:
    tree = namespace()
    _, leaves = flat_partition(tree)
    assert list(leaves) == [".a", ".b", ".c[0]", ".c[1]"]
    assert leaves[".a"] == 1 and leaves[".b"] is tree.b and leaves[".c[0]"] == "three" and leaves[".c[1]"] is False
    _, arrays, others = flat_partition(tree, jax.Array)
    assert list(arrays) == [".b"] and arrays[".b"] is tree.b
    assert others == {".a": 1, ".c[0]": "three", ".c[1]": False}


def test_the_example_of_combine() -> None:
    tree = namespace()
    spec, arrays, others = flat_partition(tree, jax.Array)
    others = {key: str(leaf).upper() for key, leaf in others.items()}
    made = flat_combine(spec, arrays, others)
    assert type(made) is inox.tree.Namespace
    assert made.a == "1" and made.b is tree.b and made.c == ["THREE", "FALSE"]


def test_the_example_of_module_partition() -> None:
    model = layers()
    static, arrays = flat_partition(model, is_array, rest="static")
    assert {key: (str(x.dtype), x.shape) for key, x in arrays.items()} == {
        ".layers[0].bias.value": ("float32", (64,)),
        ".layers[0].weight.value": ("float32", (3, 64)),
        ".layers[2].p": ("float32", ()),
        ".layers[3].bias.value": ("float32", (5,)),
        ".layers[3].weight.value": ("float32", (64, 5)),
    }
    static, params, others = flat_partition(model, nn.Parameter, is_array, rest="static")
    assert list(params) == [key for key in arrays if key != ".layers[2].p"]
    assert list(others) == [".layers[2].p"]

    grads = jax.tree.map(jnp.ones_like, params)
    updated = jax.tree.map(lambda x, y: x + 0.01 * y, params, grads)
    new = flat_combine(static, updated, others)
    assert type(new) is nn.Module and new.layers[2].p is model.layers[2].p
    np.testing.assert_allclose(new.layers[3].bias.value, model.layers[3].bias.value + 0.01)

    # Inox marks a layer and asks a predicate on nodes; here the layer is named by its path.
    model.layers[3].frozen = True
    _, *expected = model.partition(lambda x: getattr(x, "frozen", False), nn.Parameter)
    frozen_filter = all_of(nn.Parameter, by_path("layers/3/**"))
    _, frozen, params, others, _ = flat_partition(model, frozen_filter, nn.Parameter, is_array)
    for found, wanted in zip((frozen, params, others), expected, strict=True):
        assert_identical_dicts(found, wanted)


def test_the_example_of_the_readme() -> None:
    model = mlp()
    static, params, others = flat_partition(model, nn.Parameter, is_array, rest="static")
    _, *expected = model.partition(nn.Parameter)
    assert_identical_dicts(params, expected[0])
    assert_identical_dicts(others, expected[1])
    assert list(others) == [".mask"]

    x = jax.random.normal(jax.random.key(1), (16, 3))
    y = jnp.sort(x, axis=-1)
    traces: list[int] = []

    @jax.jit
    def loss_fn(params: Any, others: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        traces.append(1)
        model = flat_combine(static, params, others)
        assert model.name == "stainless"
        return jnp.mean((y - jax.vmap(model)(x)) ** 2)

    before = loss_fn(params, others, x, y)
    for _ in range(3):
        grads = jax.grad(loss_fn)(params, others, x, y)
        params = jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)
    assert loss_fn(params, others, x, y) < before
    assert type(flat_combine(static, params, others)) is MLP


def test_the_example_of_shared_layers() -> None:
    model = Shared(jax.random.key(0))
    static, params = flat_partition(model, nn.Parameter, rest="static")
    assert list(params) == list(model.partition(nn.Parameter)[1])
    assert not any(key.startswith((".l2", ".l4.weight")) for key in params)
    made = flat_combine(static, params)
    assert made.l2.obj is made.l1.obj


# --- beyond


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS)
def test_inox_s_own_trees(model: str, filters: tuple[Any, ...]) -> None:
    if model == "shared":  # is made anew at every flattening: compare the keys
        tree = MODELS[model]()
        found, expected = flat_partition(tree, *filters)[1:], inox.tree.partition(tree, *filters)[1:]
        assert [list(d) for d in found] == [list(d) for d in expected]
    else:
        assert_same_as_inox(MODELS[model](), filters)


# Inox 0.8.0 raises a TypeError for these itself.
NOT_FOR_INOX = {"jax_partial", "jax_partial_keywords"}


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - NOT_FOR_INOX))
def test_trees_of_every_family(name: str) -> None:
    make = SAMPLES[name]
    for filters in ((), (jax.Array,), (list, Layer), (Layer, list, tuple), (Pair, Bag, Cell, Tray, int), (object,)):
        assert_same_as_inox(make(), filters)


def test_errors_list_what_inox_lists() -> None:
    tree = namespace()
    spec, all_leaves = flat_partition(tree)
    treedef, leaves = inox.tree.partition(tree)
    for d in (all_leaves, leaves):
        d[".x"] = d.pop(".b")
    for combine, structure, d in ((flat_combine, spec, all_leaves), (inox.tree.combine, treedef, leaves)):
        with pytest.raises(KeyError, match=r"\.b"):
            combine(structure, d)


def test_an_inox_module_through_filter_jit_as_arrays_and_spec() -> None:
    model = layers()
    spec, params, rest = flat_partition(model, nn.Parameter, is_array, rest="static")
    traces: list[int] = []

    @filter_jit
    def f(params: Any, rest: Any, spec: Any, x: jax.Array) -> Any:
        traces.append(1)
        model = flat_combine(spec, params, rest)
        return model.layers[3](model.layers[1](model.layers[0](x)))

    x = jnp.ones(3)
    expected = model.layers[3](model.layers[1](model.layers[0](x)))
    for _ in range(2):
        spec = flat_partition(layers(), nn.Parameter, is_array, rest="static")[0]
        assert_close(f(params, rest, spec, x), expected)
    assert len(traces) == 1
    assert_identical(flat_combine(spec, params, rest).layers[3].weight, model.layers[3].weight)
