"""Guards the promise that `scan_layers` computes what the Python loop over the layers does, gradients included, in a
program that has one layer; and that layers which are equal but for their arrays become one tree and come back."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax.tree import stack, unstack
from transformed import assert_close_trees
from trees import Layer, array, assert_close, assert_same, double


class Block(eqx.Module):
    layer: Layer
    name: str = eqx.field(static=True, default="block")

    def __call__(self, x: jax.Array, key: Any = None) -> jax.Array:
        noise = 0.0 if key is None else jax.random.normal(key, x.shape)
        return x + self.layer(x) + noise


def blocks(count: int) -> list[Block]:
    return [Block(Layer(array(3, 3, start=i) / 64, array(3) / 8, activation=jnp.tanh)) for i in range(count)]


def loop(layers: Any, x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


X = jnp.array([0.5, -0.25, 1.0])
dots = jax.checkpoint_policies.dots_saveable
OPTIONS = [{}, {"remat": True}, {"remat": dots}, {"unroll": 2}, {"unroll": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_values_and_gradients_are_the_loop_s(options: dict[str, Any]) -> None:
    layers = blocks(4)

    @partax.filter_jit
    def by(call: Any, layers: Any, x: Any) -> Any:
        return partax.filter_value_and_grad(lambda both: jnp.sum(call(*both) ** 2))((layers, x))

    value, (grads, by_x) = by(loop, layers, X)
    found, (stacked_grads, stacked_by_x) = by(lambda layers, x: partax.scan_layers(layers, x, **options), layers, X)
    assert_close(found, value)
    assert_close(stacked_by_x, by_x)
    assert_close_trees(stacked_grads, grads)
    if not options:
        found, (of_stack, _) = by(partax.scan_layers, stack(layers), X)
        assert_close(found, value)
        assert_close_trees(list(unstack(partax.filter(of_stack, partax.is_array))), grads)


def test_options_reach_the_program() -> None:
    layers = stack(blocks(4))

    def program(**options: Any) -> str:
        return str(jax.make_jaxpr(lambda x: partax.scan_layers(layers, x, **options))(X))

    assert "remat" not in program() and "unroll=1" in program()
    assert "remat" in program(remat=True) and "policy=None" in program(remat=True)
    assert "remat" in program(remat=dots) and "policy=None" not in program(remat=dots)
    assert "unroll=2" in program(unroll=2) and "reverse=True" in program(reverse=True)


def test_each_layer_has_its_own_key_and_gives_its_own_aux_in_either_order() -> None:
    assert_close(partax.scan_layers(tuple(blocks(3)), X, reverse=True), loop(blocks(3)[::-1], X))
    assert_close(partax.scan_layers([jnp.tanh] * 3, X), loop([jnp.tanh] * 3, X))
    layers, keys = blocks(3), jax.random.split(jax.random.key(0), 3)
    expected, norms = X, []
    for layer, key in zip(layers, keys, strict=True):
        expected = layer(expected, key)
        norms.append(jnp.sum(expected))
    assert_close(partax.scan_layers(layers, X, keys), expected)

    def call(layer: Block, x: jax.Array, entry: Any) -> Any:
        assert entry["kind"] == "k"
        out = layer(x, entry["key"])
        return out, {"norm": jnp.sum(out), "name": layer.name}

    found, aux = partax.scan_layers(layers, X, {"key": keys, "kind": "k"}, call=call, has_aux=True)
    assert_close(found, expected)
    assert_close(aux["norm"], jnp.stack(norms))
    assert aux["name"] == "block"


CUT = lambda layer, x: {"x": x["x"][:2]}
LENGTH = "found float32[3], expected a leading axis of length 2, as"
SCALAR = "`tree[1]`: found float32[], expected an array with a leading axis"
WRONG: list[tuple[Any, str]] = [
    (lambda: partax.scan_layers(jnp.tanh, X), "`layers`: found no array, expected one or more with a leading axis, or"),
    (lambda: partax.scan_layers(blocks(2), X, [X]), f"`per_layer[0]`: {LENGTH} there are layers"),
    (lambda: partax.scan_layers({"a": jnp.ones((2, 3)), "b": X}, X), f"`layers['b']`: {LENGTH} `layers['a']`"),
    (lambda: partax.scan_layers(blocks(2), {"x": X}, call=CUT), "`x['x']`: float32[3] before the layer, float32[2] af"),
    (lambda: partax.scan_layers(blocks(2), X, has_aux=True), "found a "),
    (lambda: stack([]), "`layers`: found none"),
    (lambda: unstack({"a": 1}), "`tree`: found no array"),
    (lambda: unstack([jnp.ones(2), np.float32(1)]), SCALAR),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_does_not_fit_is_told_by_its_path(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match="^" + re.escape(message)):
        call()


def layer(i: int, **changes: Any) -> Any:
    weight = changes.pop("weight", jnp.full((2, 3), i, jnp.float32))
    given = {"bias": np.full(2, i, np.float32), "rate": 0.5, "activation": jnp.tanh, **changes}
    return {"a": Layer(weight, **given), "b": [jax.random.key(i), jnp.bfloat16(i), None], "f": double}


def test_stack_and_unstack_are_one_another_s_inverse() -> None:
    layers = [layer(i) for i in range(3)]
    stacked = stack(layers)
    np.testing.assert_array_equal(stacked["a"].weight, np.stack([np.full((2, 3), i) for i in range(3)]))
    assert stacked["a"].bias.shape == (3, 2) and stacked["b"][0].shape == (3,)
    assert stacked["a"].rate == 0.5 and stacked["a"].activation is jnp.tanh and stacked["f"] is double
    for one, other in zip(unstack(stacked), layers, strict=True):
        assert_same(one, other)


DIFFERENCES: dict[str, tuple[dict[str, Any], str, str]] = {
    "a static field": ({"scale": 3}, ".scale", "found 3, expected 2"),
    "a missing array": ({"bias": None}, ".bias", "found None, expected float32[2]"),
    "a dtype": ({"weight": jnp.ones((2, 3), int)}, ".weight", "found int32[2,3], expected float32[2,3]"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_told_by_its_path(name: str) -> None:
    changes, path, told = DIFFERENCES[name]
    with pytest.raises(ValueError, match=re.escape(f"`layers[2]['a']{path}`: {told}") + ".*as `layers"):
        stack([layer(0), layer(1), layer(2, **changes), layer(3, scale=9)])
