"""Guards the promise that loops over any trees compute what Python's own do, and what `jax.lax`'s do on arrays, under
every transformation; arrays are carried, all else stays, and numbers and weak types settle as in Python's loop; and
that `scan_layers` computes what the Python loop over the layers does, gradients included, in a program that has one
layer, and layers which are equal except for their arrays become one tree and come back."""

import re
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from conftest import TraceCounter
from partax.tree import stack, unstack
from transformed import assert_close_trees
from trees import Layer, array, assert_close, assert_same, double


def scan_in_python(f: Any, init: Any, xs: list[Any]) -> tuple[Any, list[Any]]:
    ys = []
    for x in xs:
        init, y = f(init, x)
        ys.append(y)
    return init, ys


def carry() -> dict[str, Any]:
    return {
        "layer": Layer(array(2, 2), array(2), 0.25, activation=jnp.tanh),
        "none": None,
        "mode": "train",
        "apply": double,
        "state": (jnp.zeros(2), np.zeros(2, np.float32)),
    }


def step(carry: dict[str, Any], x: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    layer, (total, last) = carry["layer"], carry["state"]
    assert layer.rate == 0.25 and carry["mode"] == "train" and x["text"] == "same"
    out = carry["apply"](layer(x["x"] + total))
    moved = Layer(layer.weight * 0.5, layer.bias, layer.rate, activation=layer.activation)
    carry = {**carry, "layer": moved, "state": (total + out, last - x["x"])}
    return carry, {"out": out, "kind": ("y", 1), "none": None}


@pytest.mark.parametrize("jit", [lambda f: f, partax.filter_jit], ids=["eager", "jit"])
@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"unroll": 2}], ids=str)
def test_a_scan_is_the_python_loop_for_trees_with_static_parts(jit: Any, options: dict[str, Any]) -> None:
    xs = jnp.arange(6.0).reshape(3, 2) / 6
    entries = [{"x": x, "text": "same"} for x in xs]
    last, ys = jit(lambda init, xs: partax.filter_scan(step, init, xs, **options))(carry(), {"x": xs, "text": "same"})
    expected, one_by_one = scan_in_python(step, carry(), entries[::-1] if options.get("reverse") else entries)
    assert_close_trees(last, expected)
    outs = jnp.stack([y["out"] for y in one_by_one])
    assert_close_trees(ys, {"out": outs[::-1] if options.get("reverse") else outs, "kind": ("y", 1), "none": None})


def test_a_scan_takes_a_length_in_place_of_arrays() -> None:
    last, ys = partax.filter_scan(lambda c, x: (c * 2, x), jnp.ones(2), "text", length=3)
    assert ys == "text"
    np.testing.assert_array_equal(last, [8.0, 8.0])


def test_arrays_alone_are_as_in_jax_lax() -> None:
    xs = jnp.arange(4.0)

    def f(c: Any, x: Any) -> Any:
        return (c[0] * 0.5 + x, c[1] + 1), jnp.sin(c[0])

    init = jnp.float32(0.5), jnp.int32(0)
    assert_close_trees(partax.filter_scan(f, init, xs), jax.lax.scan(f, init, xs))
    low = lambda c: c[0] < 9.0
    grow = lambda c: (c[0] * 2 + 1, c[1] + 1)
    assert_close_trees(partax.filter_while_loop(low, grow, init), jax.lax.while_loop(low, grow, init))
    body = lambda i, c: (c[0] + i, c[1] - i)
    assert_close_trees(partax.filter_fori_loop(1, 4, body, init), jax.lax.fori_loop(1, 4, body, init))
    assert_close_trees(partax.filter_map(jnp.sin, xs, batch_size=3), jax.lax.map(jnp.sin, xs, batch_size=3))


def test_vmap_and_derivatives_see_an_ordinary_program() -> None:
    def f(x: Any) -> Any:
        last, _ = partax.filter_scan(lambda c, _: ((c[0] * x, c[1]), None), (x, "s"), length=3)
        return partax.filter_fori_loop(0, 2, lambda i, c: (c[0] + x, c[1]), last)[0]

    x = jnp.array([0.5, 2.0])
    assert_close(jax.vmap(f)(x), x**4 + 2 * x)
    assert_close(jax.jvp(f, (x,), (jnp.ones(2),))[1], 4 * x**3 + 2)
    assert_close(jax.vmap(jax.grad(f))(x), 4 * x**3 + 2)


def test_a_step_is_traced_once_and_a_jitted_loop_hits(traces: TraceCounter) -> None:
    def f(c: Any, x: Any) -> Any:
        traces.tick()
        return {**c, "a": c["a"] + x}, None

    jitted = partax.filter_jit(partial(partax.filter_scan, f))
    for static, count in (("a", 1), ("a", 1), ("b", 2)):
        jitted({"a": jnp.full((), count, float), "s": static}, jnp.arange(3.0))
        assert traces.count == count


def test_loops_run_without_jit_and_leak_no_tracers() -> None:
    with jax.disable_jit():
        last, ys = partax.filter_scan(step, carry(), {"x": jnp.ones((2, 2)), "text": "same"})
        assert partax.filter_while_loop(lambda c: c["n"] < 3, lambda c: {**c, "n": c["n"] + 1}, {"n": 0})["n"] == 3
    assert_close_trees(last, scan_in_python(step, carry(), [{"x": jnp.ones(2), "text": "same"}] * 2)[0])
    assert ys["kind"] == ("y", 1)
    with jax.checking_leaks():
        found = partax.filter_scan(lambda c, x: (c + x, "s"), 0, jnp.arange(3.0))
        branch = partax.filter_cond(True, lambda x: (x, 1), lambda x: (x + 1, 2), jnp.ones(()))
    assert found[0] == 3.0 and branch == (1.0, 1)


COUNTS = jnp.arange(3.0)


# What is carried, the step, and the type that it settles to; `~` is jax's sign for a weak type.
SETTLES: dict[str, tuple[Any, Any, str]] = {
    "a number made an array": (0.0, lambda c, x: c + x, "float32[]"),
    "an integer made a float": (0, lambda c, x: c + x, "float32[]"),
    "a number that changes": (0, lambda c, x: c + 1, "~int32[]"),
    "a weak array (jax #9046)": (jnp.asarray(0), lambda c, x: c + x, "float32[]"),
    "a weak float and bfloat16": (0.0, lambda c, x: c + x.astype(jnp.bfloat16), "bfloat16[]"),
    "an array set to a number": (jnp.float32(3), lambda c, x: 0, "float32[]"),
    "numbers that depend on one another": ((0, 0), lambda c, x: (c[0] + x, c[1] + c[0]), "float32[] float32[]"),
}


@pytest.mark.parametrize("name", SETTLES)
def test_a_carry_settles_to_the_type_that_a_python_loop_ends_with(name: str) -> None:
    init, f, expected = SETTLES[name]
    found, _ = partax.filter_scan(lambda c, x: (f(c, x), None), init, COUNTS)
    looped = init
    for x in COUNTS:
        looped = f(looped, x)
    assert " ".join(str(jax.typeof(x)) for x in jax.tree.leaves(found)) == expected
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(looped), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_error_in_a_step_says_which_number_it_made_an_array() -> None:
    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"argument c\['n'\]"):
        partax.filter_scan(lambda c, x: ({"n": c["n"] + 1 if c["n"] < 2 else 0}, None), {"n": 0}, length=3)


# ---- Layers.


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
