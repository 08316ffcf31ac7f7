"""Guards the promise that loops over any trees compute what Python's own do, and what `jax.lax`'s do on arrays, under
every transformation; arrays are carried, all else stays, and numbers and weak types settle as in Python's loop."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from conftest import TraceCounter
from transformed import assert_close_trees
from trees import Layer, array, assert_close, double


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
