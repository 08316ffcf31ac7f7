"""Guards the promise that filter_grad and filter_value_and_grad differentiate the inexact arrays of
the first argument, give None for all else in it, and pass the other arguments through untouched."""

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import partax

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


def test_all_but_inexact_arrays_arrive_untouched_and_have_gradient_none():
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

    def function(seen):
        assert all(seen[name] is value for name, value in tree.items() if name != "array")
        return jnp.sum(seen["array"] ** 2) * seen["float"]

    grad = partax.filter_grad(function)(tree)
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
