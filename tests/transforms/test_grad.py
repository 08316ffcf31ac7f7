"""Guards the promise that filter_grad and filter_value_and_grad differentiate the inexact arrays of
the first argument, give None for all else in it, and pass the other arguments through untouched."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import partax
from transformed import assert_close_trees
from trees import assert_close

TRANSFORMS = pytest.mark.parametrize("transform", [partax.filter_grad, partax.filter_value_and_grad])


class Affine(eqx.Module):
    weight: jax.Array
    bias: object
    scale: float
    name: str = eqx.field(static=True, default="affine")

    def __call__(self, x):
        return self.weight * x * self.scale + self.bias

    @partax.filter_grad
    def grad_of_loss(self, x):
        return jnp.sum(self(x) ** 2)

    @partax.filter_value_and_grad(has_aux=True)
    def loss_and_grad(self, x, *, power):
        return jnp.sum(self(x) ** power), self.name


def affine():
    return Affine(jnp.array([1.0, 2.0]), np.array([0.5, 0.5], np.float32), 3.0)


def test_equals_equinox_on_a_model():
    model = eqx.nn.MLP(3, 2, 8, 2, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (5, 3))

    def loss(model, x):
        return jnp.mean(jax.vmap(model)(x) ** 2)

    value, grad = partax.filter_value_and_grad(loss)(model, x)
    expected_value, expected_grad = eqx.filter_value_and_grad(loss)(model, x)
    assert_close(value, expected_value)
    assert_close_trees(grad, expected_grad)
    assert_close_trees(partax.filter_grad(loss)(model, x), expected_grad)


def test_none_for_all_that_is_not_an_inexact_array():
    tree = {
        "float": 2.0,
        "complex": 1j,
        "int": 3,
        "bool": True,
        "str": "s",
        "none": None,
        "function": jnp.sin,
        "ints": jnp.arange(3),
        "numpy ints": np.arange(3),
        "bools": np.array([True]),
        "np int": np.int32(1),
        "key": jax.random.key(0),
        "object": object(),
        "array": jnp.ones(2),
    }
    grad = partax.filter_grad(lambda t: jnp.sum(t["array"] ** 2) * t["float"])(tree)
    assert set(grad) == set(tree)
    np.testing.assert_array_equal(grad.pop("array"), [4.0, 4.0])
    assert all(g is None for g in grad.values())


def compiles(dtype):
    """XLA may call functions for half precision that are not there: where the processor does not convert it."""
    try:
        jnp.ones(2, dtype) * jnp.ones(2, dtype)
    except jax.errors.JaxRuntimeError:
        return False
    return True


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.ones(2, np.float32),
        lambda: np.ones(2, np.float16),
        lambda: np.ones(2, ml_dtypes.bfloat16),
        lambda: np.float32(1),
        lambda: jnp.ones(2, jnp.bfloat16),
        lambda: jnp.ones(2, jnp.float16),
    ],
    ids=["numpy", "numpy half", "numpy bfloat16", "numpy scalar", "bfloat16", "half"],
)
def test_inexact_arrays_of_every_kind_are_differentiated(make):
    value = make()
    if not compiles(value.dtype):
        pytest.skip(f"XLA has no {value.dtype} for this processor")
    grad = partax.filter_grad(lambda t: jnp.sum(t[0] ** 2).astype(jnp.float32))([value, 1.0])
    assert type(grad) is list
    assert grad[1] is None
    assert grad[0].dtype == value.dtype
    np.testing.assert_array_equal(np.asarray(grad[0], np.float32), np.full(np.shape(value), 2.0))


def test_the_rest_of_the_first_argument_arrives_untouched():
    marker, ints = object(), np.arange(2)
    seen = []

    def function(tree):
        seen.append(tree)
        return jnp.sum(tree["x"])

    partax.filter_grad(function)({"x": jnp.ones(2), "m": marker, "i": ints, "f": 2.0, "n": None})
    (tree,) = seen
    assert tree["m"] is marker
    assert tree["i"] is ints
    assert tree["f"] == 2.0
    assert type(tree["f"]) is float
    assert tree["n"] is None


AUX = {
    "None": lambda x: None,
    "string": lambda x: "text",
    "object": lambda x: MARKER,
    "function": lambda x: len,
    "tracer": lambda x: x * 2,
    "tree of all": lambda x: {
        "a": (x * 2, "s"),
        "b": [MARKER, None, 1, True, 2.0],
        "n": np.ones(2),
    },
    "model": lambda x: affine(),
}
MARKER = object()


@pytest.mark.parametrize("name", AUX)
def test_aux_may_be_anything(name):
    make = AUX[name]
    x = jnp.arange(3.0)

    def function(x):
        return jnp.sum(x**2), make(x)

    grad, aux = partax.filter_grad(function, has_aux=True)(x)
    (value, aux_too), grad_too = partax.filter_value_and_grad(function, has_aux=True)(x)
    np.testing.assert_allclose(grad, 2 * x)
    np.testing.assert_allclose(grad_too, 2 * x)
    np.testing.assert_allclose(value, 5.0)
    expected_leaves, expected_def = jax.tree.flatten(make(x))
    for result in (aux, aux_too):
        leaves, treedef = jax.tree.flatten(result)
        assert treedef == expected_def
        for got, expected in zip(leaves, expected_leaves, strict=True):
            if eqx.is_array(expected):
                np.testing.assert_array_equal(got, expected)
            else:
                assert type(got) is type(expected)
                assert got == expected
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(aux))


def test_a_list_of_value_and_aux_is_a_pair_too():
    grad, aux = partax.filter_grad(lambda x: [jnp.sum(x), "aux"], has_aux=True)(jnp.ones(2))
    np.testing.assert_allclose(grad, [1.0, 1.0])
    assert aux == "aux"


@TRANSFORMS
def test_no_positional_argument_is_a_type_error(transform):
    wrapped = transform(lambda x: jnp.sum(x))
    with pytest.raises(TypeError, match="position"):
        wrapped()
    with pytest.raises(TypeError, match="position"):
        wrapped(x=jnp.ones(2))


@TRANSFORMS
def test_a_result_that_is_no_real_scalar_is_jax_s_type_error(transform):
    with pytest.raises(TypeError, match="scalar"):
        transform(lambda x: x)(jnp.ones(2))
    with pytest.raises(TypeError, match="real"):
        transform(lambda x: jnp.sum(x).astype(int))(jnp.ones(2))


def test_as_a_method_decorator_with_respect_to_self():
    model, x = affine(), jnp.array([1.0, -1.0])
    grad = model.grad_of_loss(x)
    assert_close_trees(grad, eqx.filter_grad(lambda m: jnp.sum(m(x) ** 2))(model))
    assert type(grad) is Affine
    (value, aux), grad = model.loss_and_grad(x, power=2)
    assert_close(value, jnp.sum(model(x) ** 2))
    assert aux == "affine"
    assert grad.scale is None
    assert_close_trees(Affine.grad_of_loss(model, x), model.grad_of_loss(x))


@TRANSFORMS
def test_the_wrapper_looks_like_the_function(transform):
    def loss(model, x, *, flag=False):
        """The loss's docstring."""
        return jnp.sum(x)

    wrapped = transform(loss)
    assert wrapped.__name__ == "loss"
    assert wrapped.__qualname__ == loss.__qualname__
    assert wrapped.__doc__ == loss.__doc__
    assert wrapped.__module__ == __name__
    assert wrapped.__wrapped__ is loss
    assert inspect.signature(wrapped) == inspect.signature(loss)


def test_composes_with_filter_jit_inside_and_outside():
    model, x = affine(), jnp.array([1.0, -1.0])
    count = [0]

    def loss(model, x, mode):
        count[0] += 1
        assert mode == "train"
        return jnp.sum(model(x) ** 2)

    expected = eqx.filter_grad(loss)(model, x, "train")
    count[0] = 0
    outside = partax.filter_jit(partax.filter_grad(loss))
    for _ in range(3):
        assert_close_trees(outside(model, x, "train"), expected)
    assert count == [1]
    inside = partax.filter_grad(partax.filter_jit(loss))
    assert_close_trees(inside(model, x, "train"), expected)
    value, grad = partax.filter_jit(partax.filter_value_and_grad(loss))(model, x, "train")
    assert_close(value, loss(model, x, "train"))
    assert_close_trees(grad, expected)


def test_static_aux_through_filter_jit():
    @partax.filter_jit
    @partax.filter_value_and_grad(has_aux=True)
    def step(x, label):
        return jnp.sum(x**2), {"label": label, "n": x.shape[0], "twice": x * 2}

    for label in ("a", "b", "a"):
        (value, aux), grad = step(jnp.ones(2), label)
        assert aux["label"] == label
        assert type(aux["n"]) is int
        assert aux["n"] == 2
        np.testing.assert_allclose(value, 2.0)
        np.testing.assert_allclose(aux["twice"], grad)


def test_an_error_of_the_function_passes_through():
    def fails(x):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        partax.filter_grad(fails)(jnp.ones(2))
    with pytest.raises(LookupError, match="mine"):
        partax.filter_value_and_grad(fails)(jnp.ones(2))
