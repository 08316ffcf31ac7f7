"""Guards the promise that filter_grad and filter_value_and_grad differentiate the inexact arrays of the first argument
that `wrt=` takes and nothing else: all else has gradient None, arrives untouched, costs no backward pass, and comes out
of a jitted step as the same objects."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import by_path
from trees import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose

KEY = jax.random.key(0)
X = jnp.linspace(-1.0, 1.0, 12).reshape(4, 3)
TRANSFORMS = pytest.mark.parametrize("transform", [partax.filter_grad, partax.filter_value_and_grad])


def test_all_but_inexact_arrays_arrive_untouched_and_have_gradient_none():
    others = [2.0, 1j, 3, True, "s", None, jnp.sin, jnp.arange(3), np.arange(3), np.array([True]), np.int32(1)]
    others += [jax.random.key(0), object()]

    def function(seen):
        assert all(one is other for one, other in zip(seen["others"], others, strict=True))
        return jnp.sum(seen["array"] ** 2) * seen["others"][0]

    grad = partax.filter_grad(function)({"others": others, "array": jnp.ones(2)})
    np.testing.assert_array_equal(grad["array"], [4.0, 4.0])
    assert grad["others"] == [None] * len(others)


@pytest.mark.parametrize("value", [np.ones(2, np.float32), jnp.ones(2, jnp.bfloat16), np.float32(1)], ids=repr)
def test_inexact_arrays_of_every_kind_are_differentiated(value):
    grad = partax.filter_grad(lambda t: jnp.sum(t[0] ** 2).astype(jnp.float32))([value, 1.0])
    assert type(grad) is list and grad[1] is None and grad[0].dtype == value.dtype
    np.testing.assert_array_equal(np.asarray(grad[0], np.float32), np.full(np.shape(value), 2.0))


@TRANSFORMS
def test_what_cannot_be_differentiated_is_a_type_error(transform):
    for call, words in (
        (lambda f: f(), "position"),
        (lambda f: f(x=jnp.ones(2)), "position"),
        (lambda f: f(jnp.ones(2)), "scalar"),
        (lambda f: f(jnp.ones(())), "real"),
    ):
        with pytest.raises(TypeError, match=words):
            call(transform(lambda x: x if x.ndim else x.astype(int)))


class Scale(eqx.Module):
    factor: jax.Array
    steps: jax.Array  # ints

    def __call__(self, x):
        return x * self.factor


class Model(eqx.Module):
    first: eqx.nn.Linear
    scale: Scale
    last: eqx.nn.Linear
    activation: object = jnp.tanh
    rate: float = 0.5

    def __call__(self, x):
        return self.last(self.scale(self.activation(self.first(x)))) * self.rate


def model():
    a, b = jax.random.split(KEY)
    return Model(eqx.nn.Linear(3, 5, key=a), Scale(jnp.full(5, 2.0), jnp.arange(2)), eqx.nn.Linear(5, 2, key=b))


def loss(model, x):
    return jnp.mean(jax.vmap(model)(x) ** 2)


@functools.cache
def value_and_gradient():
    """Of Equinox, by all of the model."""
    return eqx.filter_value_and_grad(loss)(model(), X)


def by_paths(tree):
    """What is not None, by its path."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def assert_is_part_of(gradient, whole, paths):
    """`gradient` is `whole` at `paths`, and None elsewhere."""
    found, expected = by_paths(gradient), by_paths(whole)
    assert [*found] == paths
    assert len({jax.tree.structure(tree, is_leaf=lambda x: x is None) for tree in (gradient, whole)}) == 1
    for path, leaf in found.items():
        assert_close(leaf, expected[path])


FIRST = [".first.weight", ".first.bias"]
LAST = [".last.weight", ".last.bias"]
ALL = [*FIRST, ".scale.factor", *LAST]
FILTERS = {
    "path": (lambda: by_path("last/**"), LAST),
    "type": (lambda: eqx.nn.Linear, FIRST + LAST),
    "predicate": (lambda: lambda x: x.ndim == 2, [".first.weight", ".last.weight"]),
    "any": (lambda: by_path(regex="^first/b") | Scale, [".first.bias", ".scale.factor"]),
    "prefix of filters": (lambda: jax.tree.map(lambda _: by_path("**/bias"), model()), [".first.bias", ".last.bias"]),
    "None": (lambda: None, ALL),
}


@pytest.mark.parametrize(("make", "paths"), FILTERS.values(), ids=FILTERS)
def test_the_gradient_is_that_of_the_whole_where_the_filter_takes_it(make, paths):
    expected, whole = value_and_gradient()
    jitted, again = (partax.filter_jit(partax.filter_value_and_grad(loss, wrt=make())) for _ in range(2))
    for value_and_gradient_of in (jitted, again):
        value, gradient = value_and_gradient_of(model(), X)
        assert_close(value, expected)
        assert_is_part_of(gradient, whole, paths)
    assert jitted.cache_info().traces == 1
    assert again.cache_info().hits == 1  # an equal filter made anew shares the trace
    assert_is_part_of(partax.filter_grad(loss, wrt=make())(model(), X), whole, paths)


@TRANSFORMS
def test_frozen_layers_have_no_products_in_the_backward_pass(transform):
    layers = 5
    weights = [jnp.eye(3) for _ in range(layers)]

    def chain(weights, x):
        for weight in weights:
            x = jnp.sin(x @ weight)
        return jnp.sum(x)

    def count(wrt):
        return str(jax.make_jaxpr(transform(chain, wrt=wrt))(weights, X)).count(" dot_general[")

    # Forward one for each layer. Backward one for each weight that is trained, and one to reach each layer from the
    # one after it, as far down as the first that is trained.
    assert count(None) == layers + layers + (layers - 1)
    assert count(by_path(str(layers - 1))) == layers + 1
    assert count(by_path("0")) == layers + 1 + (layers - 1)
    assert count(False) == layers


@pytest.mark.parametrize("wrt", ["x", 1, {"x": "y"}, [True]], ids=repr)
def test_what_is_no_filter_is_a_value_error(wrt):
    with pytest.raises(ValueError, match=r"filter|structure"):
        partax.filter_grad(lambda t: jnp.sum(t["x"]), wrt=wrt)({"x": jnp.ones(2)})


def test_frozen_arrays_come_out_of_a_step_as_the_same_objects():
    @partax.filter_jit
    def step(model, x):
        gradient = partax.filter_grad(loss, wrt=by_path("last/**"))(model, x)
        return partax.apply_updates(model, jax.tree.map(jnp.negative, gradient))

    before = model()
    after = step(before, X)
    assert after.first.weight is before.first.weight and after.scale.steps is before.scale.steps
    assert after.last.weight is not before.last.weight
