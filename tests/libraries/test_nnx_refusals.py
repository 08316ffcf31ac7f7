"""Guards the promise that what nnx.jit refuses is refused with the same error and a path, and changes nothing; and that
plain filter_jit never loses silently what its function does to an nnx object."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import partax
import partax.nnx
from nnx_graphs import described
from processes import python
from trees import Nameless


class Model(nnx.Module):
    def __init__(self) -> None:
        self.weight = nnx.Param(jnp.ones(2))
        self.inner = nnx.Dict(bias=nnx.Param(jnp.zeros(2)))


outer = Model()


def change_it(x: Any) -> Any:
    outer.inner.bias[...] += 1
    return x


def leak_into_it(x: Any) -> Any:
    outer.inner.leaked = x
    return x


def delete_of_it(x: Any) -> Any:
    outer.weight.set_metadata(tag=1)
    return x


def return_it(x: Any) -> Any:
    return {"model": outer}


def assign_it(x: Any) -> Any:
    x.inner.model = outer


def change_an_argument_inside_grad(x: Any) -> Any:
    def loss(y: Any) -> Any:
        x.inner.bias[...] += y
        return y.sum()

    return jax.grad(loss)(jnp.ones(2))


@pytest.mark.parametrize(
    ("function", "path"),
    [
        (change_it, "outer.inner.bias"),
        (leak_into_it, "outer.inner"),
        (delete_of_it, "outer.weight"),
        (return_it, "outer.inner.bias"),
        (assign_it, "outer.inner.bias"),
        (change_an_argument_inside_grad, "x.inner.bias"),
    ],
)
def test_an_object_of_another_trace(function: Callable[[Any], Any], path: str) -> None:
    argument, before = Model(), described(outer)
    with pytest.raises(Exception, match="trace level") as theirs:
        nnx.jit(function)(Model())
    jitted = partax.nnx.jit(function)
    for _ in range(2):
        with pytest.raises(type(theirs.value)) as ours:
            jitted(argument)
        assert str(ours.value) == str(theirs.value) or path in ("outer.inner.bias",)
        assert str(ours.value).split(" (")[0].split(", got")[0] == str(theirs.value).split(" (")[0].split(", got")[0]
        assert any(f"`{path}`" in note for note in ours.value.__notes__)
    assert described(outer) == before
    assert described(argument) == described(Model())
    assert jitted.cache_info().traces == 0


def test_an_argument_of_an_outer_trace_is_read_and_not_changed() -> None:
    model = Model()

    def change(model: Model) -> None:
        model.inner.bias[...] += 1

    @jax.jit
    def read(x: jax.Array) -> jax.Array:
        return partax.nnx.jit(lambda model: model.weight[...] * 2)(model)

    @jax.jit
    def write(x: jax.Array) -> jax.Array:
        partax.nnx.jit(change)(model)
        return x

    assert read(jnp.ones(1))[0] == 2
    with pytest.raises(Exception, match="trace level") as caught:
        write(jnp.ones(1))
    assert type(caught.value).__name__ == "TraceContextError"
    assert any("`model.inner.bias`" in note for note in caught.value.__notes__)
    assert described(model) == described(Model())


def test_bound_methods() -> None:
    class Other(nnx.Module):
        def method(self) -> None: ...

    for jit in (nnx.jit, partax.nnx.jit):
        with pytest.raises(ValueError, match="does not support bound methods"):
            jit(Other().method)


def test_hijax_variables() -> None:
    variable = nnx.Variable(jnp.ones(2), hijax=True)
    with pytest.raises(TypeError, match="hijax") as caught:
        partax.nnx.jit(lambda args: args["a"][0][...])({"a": [variable]})
    assert any("`args['a'][0]`" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("when", ["trace", "hit"])
def test_a_call_that_fails_changes_nothing(when: str) -> None:
    model, model_before = Model(), described(Model())

    def step(model: Model, fails: jax.Array) -> jax.Array:
        model.weight[...] += 1
        model.inner.bias = nnx.Param(jnp.ones(3))
        model.name = "new"
        if when == "trace":
            raise KeyboardInterrupt
        jax.debug.callback(check, fails, ordered=False)
        return jax.pure_callback(check, jax.ShapeDtypeStruct((), jnp.float32), fails)

    def check(fails: Any) -> Any:
        if fails:
            raise RuntimeError("on purpose")
        return jnp.float32(0)

    jitted = partax.nnx.jit(step)
    if when == "hit":
        jitted(Model(), jnp.array(False))
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        jax.block_until_ready(jitted(model, jnp.array(True)))
    if when == "trace":
        assert described(model) == model_before


def test_a_new_value_that_cannot_be_set_changes_nothing() -> None:
    class Picky(nnx.Module):
        def __init__(self) -> None:
            self.a = nnx.Param(jnp.ones(1))

    def step(model: Picky) -> None:
        model.a[...] += 1
        model.__class__ = Model

    model = Picky()
    with pytest.raises(ValueError, match="Expected a node of type"):
        partax.nnx.jit(step)(model)
    assert model.a[...] == 1


def test_an_array_in_a_static_attribute_is_refused_as_without_jit() -> None:
    class Named(nnx.Module):
        def __init__(self) -> None:
            self.name = "a"

    def step(model: Named, x: jax.Array) -> None:
        model.name = x

    model = Named()
    with pytest.raises(ValueError, match="static attribute 'name'") as plain:
        step(Named(), jnp.ones(2))
    with pytest.raises(ValueError, match="static attribute 'name'"):
        partax.nnx.jit(step)(model, jnp.ones(2))
    assert "Cannot assign data value" in str(plain.value)
    assert model.name == "a"


def test_flax_is_not_imported_before_it_is_used_and_its_extra_is_named_where_it_is_missing() -> None:
    code = """import sys, partax
print('flax' in sys.modules)
sys.modules['flax'] = None
try: partax.nnx
except ImportError as error: print(error)"""
    out = python("-c", code)
    assert out.stdout.startswith("False\n") and "partax[flax]" in out.stdout


def test_an_interrupt_leaves_all_changed_or_none() -> None:
    """A signal comes between any two calls; the Variables must then all have the same count."""
    model = nnx.List([nnx.Variable(jnp.zeros((), jnp.int32)) for _ in range(30)])

    @partax.nnx.jit
    def step(model: Any) -> None:
        for variable in model:
            variable[...] += 1

    step(model)
    interrupted = 0

    class Stop(BaseException):
        pass

    def stop(*_: Any) -> None:
        raise Stop

    callbacks = gc.callbacks.copy()
    gc.callbacks.clear()  # those of jax and hypothesis, in which Python drops an interrupt
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for i in range(100):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0001 + (i % 50) * 2e-5)
                    for _ in range(50):
                        step(model)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                interrupted += 1
            assert len({int(variable[...]) for variable in model}) == 1
    finally:
        signal.signal(signal.SIGALRM, before)
        gc.callbacks.extend(callbacks)
    assert interrupted > 50


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
