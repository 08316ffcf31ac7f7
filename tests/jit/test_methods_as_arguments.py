"""A bound method of a tree is the tree with its function, wherever an argument or a result holds it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import partax
import partax.nnx


class Module(eqx.Module):
    weight: jax.Array

    def scale(self, x):
        return self.weight * x


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Dataclass:
    weight: jax.Array

    def scale(self, x):
        return self.weight * x


class Network(nnx.Module):
    def __init__(self, weight):
        self.weight = nnx.Param(weight)

    def scale(self, x):
        return self.weight[...] * x


METHODS = {
    "equinox method": lambda weight: Module(weight).scale,
    "dataclass": lambda weight: Dataclass(weight).scale,
    "nnx module": lambda weight: Network(weight).scale,
}
of_each_kind = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
X = jnp.array([1.0, 2.0])


@of_each_kind
@pytest.mark.parametrize("jit", [partax.filter_jit, partax.nnx.jit])
@pytest.mark.parametrize("put_in", [lambda it: it, lambda it: ({"f": [it]},)], ids=["itself", "nested"])
def test_the_arrays_of_its_object_are_traced(make, jit, put_in):
    traces = []

    @jit
    def call(tree, x):
        traces.append(tree)
        (method,) = jax.tree.leaves(tree, is_leaf=callable)
        return method(x)

    for weight in (2.0, 3.0, 4.0):
        assert call(put_in(make(jnp.full(2, weight))), X).tolist() == [weight, 2 * weight]
    assert len(traces) == 1


@of_each_kind
def test_it_comes_back_from_a_call(make):
    doubled = partax.filter_jit(lambda method: make(2 * method.__self__.weight[...]))(make(jnp.full(2, 3.0)))
    assert doubled(X).tolist() == [6.0, 12.0]
    kept, value = partax.filter_jit(lambda method, x: (method, method(x)))(make(jnp.full(2, 3.0)), X)
    assert kept(X).tolist() == value.tolist() == [3.0, 6.0]


@of_each_kind
@pytest.mark.parametrize("around", [lambda f: f, partax.filter_jit], ids=["eager", "jit"])
def test_it_is_differentiated_as_its_tree(make, around):
    gradient = around(partax.filter_grad(lambda method, x: method(x).sum()))(make(jnp.full(2, 3.0)), X)
    assert gradient.__self__.weight[...].tolist() == X.tolist()
    value, pull = partax.filter_vjp(lambda method, x: method(x), make(jnp.full(2, 3.0)), X)
    assert value.tolist() == [3.0, 6.0]
    assert pull(jnp.ones(2))[0].__self__.weight[...].tolist() == X.tolist()


@pytest.mark.filterwarnings("ignore:.*array is being set as static:UserWarning")
def test_in_a_static_field_it_is_an_error_with_a_path():
    class Holder(eqx.Module):
        method: object = eqx.field(static=True)

    with pytest.raises(TypeError, match=r"holder\.method\.__self__\.weight"):
        partax.filter_jit(lambda holder, x: holder.method(x))(Holder(Module(X).scale), X)


class Counter(nnx.Module):
    def __init__(self):
        self.count = nnx.Variable(jnp.array(0))

    def add(self, x):
        self.count[...] += 1
        return x + self.count[...]


@pytest.mark.parametrize("with_object", [False, True])
def test_what_it_changes_in_a_flax_object_is_changed(with_object):
    counter = Counter()
    call = partax.nnx.jit(lambda first, tree, x: tree["f"](x))
    first = counter if with_object else None
    assert [int(call(first, {"f": counter.add}, 10)) for _ in range(3)] == [11, 12, 13]
    assert int(counter.count[...]) == 3
