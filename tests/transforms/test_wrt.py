"""Guards the promise that `wrt=` differentiates the inexact arrays that its filter takes and nothing else: the others
have gradient None, cost no backward pass, and come out of a jitted step as the same objects."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from partax import all_of, any_of, by_path, is_array, not_
from trees import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:a filter takes no leaf")  # on purpose

KEY = jax.random.key(0)
X = jnp.linspace(-1.0, 1.0, 12).reshape(4, 3)
TRANSFORMS = pytest.mark.parametrize("transform", [partax.filter_grad, partax.filter_value_and_grad])


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


def taken_paths(tree):
    """The paths of what is not None."""
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def assert_is_part_of(gradient, whole, paths):
    """`gradient` is `whole` at `paths`, and None elsewhere."""
    assert taken_paths(gradient) == paths
    assert jax.tree.structure(gradient, is_leaf=lambda x: x is None) == jax.tree.structure(
        whole, is_leaf=lambda x: x is None
    )
    expected = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(whole)}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert_close(leaf, expected[jax.tree_util.keystr(path)])


FIRST = [".first.weight", ".first.bias"]
LAST = [".last.weight", ".last.bias"]
ALL = [*FIRST, ".scale.factor", *LAST]


FILTERS = {
    "glob": (lambda: by_path("last/**"), LAST),
    "regex": (lambda: by_path(regex="^last/"), LAST),
    "type": (lambda: eqx.nn.Linear, FIRST + LAST),
    "types": (lambda: (Scale, bytes), [".scale.factor"]),
    "array type": (lambda: jax.Array, ALL),
    "predicate": (lambda: lambda x: x.ndim == 2, [".first.weight", ".last.weight"]),
    "built-in predicate": (lambda: is_array, ALL),
    "not": (lambda: not_(eqx.nn.Linear), [".scale.factor"]),
    "any": (lambda: any_of(by_path("first/bias"), Scale), [".first.bias", ".scale.factor"]),
    "all": (lambda: all_of(by_path("**/bias"), by_path("last/*")), [".last.bias"]),
    "prefix of filters": (lambda: jax.tree.map(lambda _: by_path("**/bias"), model()), [".first.bias", ".last.bias"]),
    "None": (lambda: None, ALL),
    "False": (lambda: False, []),
}


@pytest.mark.parametrize(("make", "paths"), FILTERS.values(), ids=FILTERS)
def test_the_gradient_is_that_of_the_whole_where_the_filter_takes_it(make, paths):
    whole = eqx.filter_grad(loss)(model(), X)
    jitted, again = (partax.filter_jit(partax.filter_grad(loss, wrt=make())) for _ in range(2))
    for gradient_of in (partax.filter_grad(loss, wrt=make()), jitted, again):
        assert_is_part_of(gradient_of(model(), X), whole, paths)
    assert jitted.cache_info().traces == 1
    # An equal filter made anew shares the trace; of a prefix that has classes of its own, nobody proves it.
    assert again.cache_info().hits == 1 - isinstance(make(), Model)
    value, gradient = partax.filter_value_and_grad(loss, wrt=make())(model(), X)
    assert_close(value, loss(model(), X))
    assert_is_part_of(gradient, whole, paths)


def test_the_filter_is_asked_about_inexact_arrays_only():
    asked = []

    def takes(leaf):
        asked.append(leaf)
        return leaf.ndim == 1

    tree = {"a": "text", "b": jnp.ones(2), "c": jnp.arange(2), "d": np.ones((1, 1)), "e": 1.0, "f": None}
    gradient = partax.filter_grad(lambda t: jnp.sum(t["b"]), wrt=takes)(tree)
    assert taken_paths(gradient) == ["['b']"]
    assert [id(leaf) for leaf in asked] == [id(tree["b"]), id(tree["d"])]


def products(jaxpr):
    """How many matrix products a program has."""
    found = 0
    for equation in jaxpr.eqns:
        found += equation.primitive.name == "dot_general"
        for parameter in equation.params.values():
            for item in parameter if isinstance(parameter, (tuple, list)) else (parameter,):
                inner = getattr(item, "jaxpr", item)
                found += products(inner) if hasattr(inner, "eqns") else 0
    return found


@pytest.mark.parametrize("layers", [2, 5])
@TRANSFORMS
def test_frozen_layers_have_no_products_in_the_backward_pass(transform, layers):
    weights = [jnp.eye(3) for _ in range(layers)]

    def chain(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.sum(x)

    def count(wrt):
        return products(jax.make_jaxpr(transform(chain, wrt=wrt))(weights, X).jaxpr)

    # Forward one for each layer. Backward one for each weight that is trained, and one to reach each layer from the
    # one after it, as far down as the first that is trained.
    assert count(None) == layers + layers + (layers - 1)
    assert count(by_path(str(layers - 1))) == layers + 1
    assert count(by_path("0")) == layers + 1 + (layers - 1)
    assert count(any_of(by_path("0"), by_path(str(layers - 1)))) == layers + 2 + (layers - 1)
    assert count(False) == layers


TREE = {"x": jnp.array([1.0, 2.0]), "y": jnp.array([3.0])}


def test_a_prefix_that_was_changed_is_another_filter(traces):
    prefix = {"x": True, "y": False}

    @partax.filter_grad(wrt=prefix)
    def wrapped(tree):
        traces.tick()
        return jnp.sum(tree["x"] ** 2) + jnp.sum(tree["y"] ** 3)

    assert taken_paths(partax.filter_jit(wrapped)(TREE)) == ["['x']"]
    prefix.update(x=False, y=True)
    for _ in range(2):
        assert taken_paths(partax.filter_jit(wrapped)(TREE)) == ["['y']"]
    assert traces.count == 2


def test_a_tree_without_inexact_arrays_has_no_gradient():
    for wrt in (None, True, False, is_array):
        assert partax.filter_grad(lambda t: jnp.float32(t[0]), wrt=wrt)([1, jnp.arange(2)]) == [None, None]


@TRANSFORMS
@pytest.mark.parametrize("wrt", ["x", 1, 0, 2.0, {"x": "y"}, [True], {"x": True, "z": True}], ids=repr)
def test_what_is_no_filter_is_a_value_error(transform, wrt):
    with pytest.raises(ValueError, match=r"filter|structure"):
        transform(lambda t: jnp.sum(t["x"]), wrt=wrt)({"x": jnp.ones(2)})


def test_frozen_arrays_come_out_of_a_step_as_the_same_objects():
    @partax.filter_jit
    def step(model, x):
        gradient = partax.filter_grad(loss, wrt=by_path("last/**"))(model, x)
        return partax.apply_updates(model, jax.tree.map(jnp.negative, gradient))

    before = model()
    after = step(before, X)
    assert after.first.weight is before.first.weight and after.scale.steps is before.scale.steps
    assert after.last.weight is not before.last.weight
