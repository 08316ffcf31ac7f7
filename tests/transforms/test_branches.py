"""Guards the promise that branches of any trees return what the chosen function returns: its arrays, and the static
part in which all agree; and that what must not change in a loop, or differ between branches, is named by its path."""

import re
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import partax
from trees import Bag, Layer, array, assert_close, double, make_model

BOTH = pytest.mark.parametrize("pred", [True, False, np.bool_(True), jnp.asarray(False)], ids=repr)


def operands() -> tuple[Any, ...]:
    return {"layer": Layer(array(2, 2), array(2)), "name": "x", "f": double}, jnp.ones(2), 0.5


def first(tree: dict[str, Any], x: jax.Array, scale: float) -> Any:
    assert tree["name"] == "x" and type(scale) is float
    return {**tree, "out": tree["layer"](x) * scale, "kind": ("k", 1)}


def second(tree: dict[str, Any], x: jax.Array, scale: float) -> Any:
    return {**tree, "out": tree["f"](x), "kind": ("k", 1)}


@BOTH
def test_a_cond_is_the_function_that_is_chosen(pred: Any) -> None:
    found = partax.filter_jit(lambda pred, *given: partax.filter_cond(pred, first, second, *given))(pred, *operands())
    expected = (first if pred else second)(*operands())
    assert_close(found.pop("out"), expected.pop("out"))
    assert eqx.tree_equal(found, expected)
    assert found["f"] is double


def test_a_switch_is_the_function_that_is_chosen_and_clamps_as_jax_does() -> None:
    branches = [lambda x, k, i=i: ({"a": x["a"] * i + k, "s": x["s"]}, i) for i in range(3)]
    for index in (-1, 0, 1, jnp.int32(2), 7):
        tree, number = partax.filter_switch(index, branches, {"a": jnp.ones(2), "s": "s"}, 2)
        chosen = min(max(int(index), 0), 2)
        np.testing.assert_array_equal(tree["a"], [chosen + 2.0] * 2)
        assert tree["s"] == "s" and number == chosen


def test_gradients_and_vmap_reach_operands_and_what_functions_hold() -> None:
    def both(layer: Layer, x: jax.Array, cond: Any) -> jax.Array:
        return jnp.sum(cond(x[0] > 0, layer, lambda x: x**2, x))

    of_python = lambda pred, yes, no, operand: yes(operand) if pred else no(operand)
    layer, xs = Layer(array(2, 2), array(2)), jnp.array([[0.5, 0.1], [-0.5, 0.1]])
    gradient = partax.filter_grad(lambda pair, cond: both(*pair, cond))
    actual, expected = (gradient((layer, xs[0]), cond) for cond in (partax.filter_cond, of_python))
    assert_close(actual[0].weight, expected[0].weight)
    assert_close(actual[1], expected[1])
    batched = jax.vmap(lambda x: both(layer, x, partax.filter_cond))(xs)
    assert_close(batched, jnp.stack([both(layer, x, of_python) for x in xs]))


# What the branches return, and the type of the result; None: what the first one returned, itself.
AGREE: dict[str, tuple[list[Any], str | None]] = {
    "equal numbers": ([1, 1, 1], None),
    "an integer and a float": ([1, 0.5, 2], "~float32[]"),
    "a number and an array": ([1, jnp.float32(2), 0.5], "float32[]"),
    "a weak float and bfloat16": ([0.5, jnp.bfloat16(2), jnp.asarray(1)], "bfloat16[]"),
}


@pytest.mark.parametrize("name", AGREE)
@pytest.mark.parametrize("index", [0, 2])
def test_numbers_and_weak_types_settle(name: str, index: int) -> None:
    values, expected = AGREE[name]
    found = partax.filter_switch(index, [lambda v=v: {"v": v, "s": "s"} for v in values])
    assert found["s"] == "s" and found["v"] == values[index]
    if expected is None:
        assert type(found["v"]) is type(values[0])
    else:
        assert str(jax.typeof(found["v"])) == expected


def test_a_strong_type_is_not_cast_to_what_numbers_have_settled_to() -> None:
    branches = [lambda: [1], lambda: [0.5], lambda: [jnp.int32(3)]]
    fails(lambda: partax.filter_switch(0, branches), "result[0]", "float32[] of weak type of branches[0], int32[] of")


def test_without_jit_only_the_chosen_function_runs() -> None:
    with jax.disable_jit():
        found = partax.filter_cond(True, lambda x: (x, "s"), lambda x: pytest.fail("was run"), jnp.ones(()))
    assert found[1] == "s" and found[0] == 1.0


XS = jnp.arange(3.0)
KEY = jax.random.key(0)


def model(**changes: Any) -> Any:
    """A model whose second layer has other attributes."""
    made = make_model(2)
    given = {"weight": made.layers[1].weight, "bias": made.layers[1].bias, **changes}
    return replace(made, layers=[made.layers[0], Layer(**given)])


# What there is before a step, and after it; the path and both in words.
CHANGES: dict[str, tuple[Any, Any, str, str, str]] = {
    "a static field": (model(), model(scale=3), ".layers[1].scale", "2", "3"),
    "another shape": (model(), model(bias=array(2)), ".layers[1].bias", "float32[3]", "float32[2]"),
    "a list made a tuple": ({"a": [1]}, {"a": (1,)}, "['a']", "a `list` of 1", "a `tuple` of 1"),
    "a key that goes": ({"a": 1, "b": 2}, {"a": 1}, "['b']", "2", "nothing"),
    "the order of keys": (OrderedDict(a=1, b=2), OrderedDict(b=1, a=2), ".keys()", "('a', 'b')", "('b', 'a')"),
    "aux data": (Bag(1, label="a"), Bag(1, label="b"), ".<aux data>", "'a'", "'b'"),
    "a number and a strong type": (0.5, jnp.int32(1), "", "0.5", "int32[]"),
    "a key and its data": (KEY, jax.random.key_data(KEY), "", "key<fry>[]", "uint32[2]"),
    "one of many strings": (["s"] * 40, ["s"] * 30 + ["t"] + ["s"] * 9, "[30]", "'s'", "'t'"),
}


def fails(call: Any, path: str, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(f"`{path}`: {words}")):
        call()


class Net(nnx.Module):
    def __init__(self, **attributes: Any):
        self.weight = nnx.Param(array(2))
        for name, value in attributes.items():
            setattr(self, name, value)


CHANGES |= {  # objects of one class of which one has a field that the other does not have
    "a Variable that comes": (Net(), Net(bias=nnx.Param(array(2))), ".bias", "nothing", "a `Param` of 1"),
    "a static attribute": (Net(), Net(mode="x"), ".mode", "nothing", "'x'"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_carry_and_a_difference_between_branches_are_told(change: str) -> None:
    before, after, path, first, second = CHANGES[change]
    told, path = f"{first} before the step, {second} after it", f"carry{path}"
    fails(lambda: partax.filter_scan(lambda c, x: (after, None), before, XS), path, told)
    fails(lambda: partax.filter_while_loop(lambda c: True, lambda c: after, before), path, told)
    fails(lambda: partax.filter_fori_loop(0, 3, lambda i, c: after, before), path, told)
    path, branches = path.replace("carry", "result", 1), [lambda: before, lambda: after]
    fails(lambda: partax.filter_cond(True, *branches), path, f"{first} of true_fun, {second} of false_fun")


def test_what_cannot_be_scanned_is_told() -> None:
    scan = lambda xs, length=None: partax.filter_scan(lambda c, x: (c, None), 0, xs, length)
    axis = "found float32[4,2], expected a leading axis of length 3, as "
    fails(lambda: scan({"a": XS, "b": jnp.ones((4, 2))}), "xs['b']", axis + "`xs['a']` has")
    fails(lambda: scan(jnp.ones((4, 2)), 3), "xs", axis + "`length` says")
    fails(lambda: scan([XS, np.float32(1)]), "xs[1]", "found float32[], expected an array with a leading axis")
    fails(lambda: scan(None), "xs", "found no array")
    with pytest.raises(TypeError, match=r"found a `int`.*, expected \(carry, y\)"):
        partax.filter_scan(lambda c, x: 1, 0, XS)
    with pytest.raises(ValueError, match=r"`branches`: found none"):
        partax.filter_switch(0, [])


def test_jax_names_the_users_argument_and_its_path() -> None:
    def f(c: Any, x: Any) -> Any:
        return c, float(x["batch"][0])

    with pytest.raises(jax.errors.ConcretizationTypeError, match=re.escape("x['batch'][0]")) as raised:
        partax.filter_scan(f, 0, {"batch": (XS, "s")})
    assert f"{f.__name__} at {__file__}" in str(raised.value)
