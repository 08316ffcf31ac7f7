"""Guards the promise that plain filter_jit never loses silently what its function does to an nnx object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

pytest.importorskip("flax", minversion="0.12.8")

from flax import nnx

import partax
from trees import Nameless


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs)])
        self.norm = nnx.BatchNorm(2, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.mode = "train"

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers[0](self.drop(self.norm(x)))


def grow(variable: Any) -> None:
    variable[...] += 1


def rename(model: Any) -> None:
    model.mode = "test"


def add(model: Any) -> None:
    model.layers[0].fresh = nnx.Param(jnp.ones(1))


def remove(model: Any) -> None:
    del model.norm


def mark(model: Any) -> None:
    model.layers[0].kernel.set_metadata(tag=1)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda model: model(jnp.ones((1, 2))), "model.drop.rngs.count"),
        (lambda model: model.norm(jnp.ones((1, 2))), "model.norm.mean"),
        (lambda model: model.norm.eval(), "model.norm.use_running_average"),
        (lambda model: grow(model.layers[0].kernel), "model.layers[0].kernel"),
        (rename, "model.mode"),
        (add, "model.layers[0].fresh"),
        (remove, "model.norm"),
        (mark, "model.layers[0].kernel.tag"),
    ],
)
def test_a_lost_change_is_an_error_with_its_path(change: Callable[[Any], Any], path: str) -> None:
    @partax.filter_jit
    def function(model: Net) -> None:
        change(model)

    model = Net(nnx.Rngs(0))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"partax\.nnx\.jit") as caught:
            function(model)
        assert f"`{path}`" in str(caught.value)
    assert float(model.norm.mean[...].sum()) == 0


def test_a_variable_in_a_node_that_cannot_name_its_children() -> None:
    read = partax.filter_jit(lambda tree: tree.children[0][...] + 1)
    assert float(read(Nameless((nnx.Param(jnp.ones(())),)))) == 2
    function = partax.filter_jit(lambda tree: grow(tree.children[0]))
    with pytest.raises(ValueError, match=r"`tree\[<flat index 0>\]`.*partax\.nnx\.jit"):
        function(Nameless((nnx.Param(jnp.ones(1)),)))


def test_a_variable_in_a_plain_container() -> None:
    function = partax.filter_jit(lambda args: grow(args["a"][0]))
    with pytest.raises(ValueError, match=r"`args\['a'\]\[0\]`"):
        function({"a": [nnx.Param(jnp.ones(1))]})


def test_what_is_returned_is_not_lost() -> None:
    def step(model: Net, x: jax.Array) -> Any:
        model(x)
        return model

    def value(variable: nnx.Param) -> Any:
        grow(variable)
        return {"new": variable[...]}

    assert float(partax.filter_jit(step)(Net(nnx.Rngs(0)), jnp.ones((1, 2))).norm.mean[...].sum()) != 0
    assert partax.filter_jit(value)(nnx.Param(jnp.ones(())))["new"] == 2


def test_what_changes_nothing_is_no_error() -> None:
    def same(model: Net, x: jax.Array) -> Any:
        model.mode = "".join(["tr", "ain"])
        model.train()
        return model.layers[0](x)

    function = partax.filter_jit(same)
    for _ in range(2):
        function(Net(nnx.Rngs(0)), jnp.ones((1, 2)))
    assert function.cache_info().traces == 1


def test_a_model_made_of_a_state_may_change() -> None:
    graphdef, state = nnx.split(Net(nnx.Rngs(0)))
    function = partax.filter_jit(lambda state, x: nnx.merge(graphdef, state)(x))
    assert function(state, jnp.ones((1, 2))).shape == (1, 2)
