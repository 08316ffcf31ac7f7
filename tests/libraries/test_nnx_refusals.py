"""Guards the promise that what nnx.jit refuses is refused with the same error and a path, and changes nothing; and that
plain filter_jit never loses silently what its function does to an nnx object."""

import gc
import re
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


def grow(variable: Any) -> None:
    variable[...] += 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: grow(outer.inner.bias),
        lambda x: setattr(outer.inner, "leaked", x),
        lambda x: outer.weight.set_metadata(tag=1),
        lambda x: {"model": outer},
        lambda x: setattr(x.inner, "model", outer),
        lambda x: jax.grad(lambda y: (grow(x.inner.bias), y.sum())[1])(jnp.ones(2)),  # whose name nnx does not tell
    ],
)
def test_an_object_of_another_trace(function: Callable[[Any], Any]) -> None:
    argument, before = Model(), described(outer)
    with pytest.raises(Exception, match="trace level") as theirs:
        nnx.jit(function)(Model())
    jitted = partax.nnx.jit(function)
    for _ in range(2):
        with pytest.raises(type(theirs.value)) as ours:
            jitted(argument)
        same, text = (re.split(r" \(|, got", str(error.value))[0] for error in (theirs, ours))
        assert text == same
        assert "outer" not in function.__code__.co_names or any("`outer`" in note for note in ours.value.__notes__)
    assert described(outer, argument) == [*before, *described(Model())]
    assert jitted.cache_info().traces == 0


def test_an_argument_of_an_outer_trace_is_read_and_not_changed() -> None:
    model = Model()
    assert jax.jit(lambda x: partax.nnx.jit(lambda model: model.weight[...] * 2)(model) + x)(0)[0] == 2
    with pytest.raises(Exception, match="trace level") as caught:
        jax.jit(lambda x: (partax.nnx.jit(lambda model: grow(model.inner.bias))(model), x))(0)
    assert any("`model.inner.bias`" in note for note in caught.value.__notes__)
    assert described(model) == described(Model())


def test_bound_methods() -> None:
    for jit in (nnx.jit, partax.nnx.jit):
        with pytest.raises(ValueError, match="does not support bound methods"):
            jit(Model().train)


def test_hijax_variables() -> None:
    variable = nnx.Variable(jnp.ones(2), hijax=True)
    with pytest.raises(TypeError, match="hijax") as caught:
        partax.nnx.jit(lambda args: args["a"][0][...])({"a": [variable]})
    assert any("`args['a'][0]`" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("when", ["trace", "hit"])
def test_a_call_that_fails_changes_nothing(when: str) -> None:
    model = Model()

    def check(fails: Any) -> Any:
        if fails:
            raise RuntimeError("on purpose")
        return jnp.float32(0)

    def step(model: Model, fails: jax.Array) -> jax.Array:
        model.weight[...] += 1
        model.inner.bias = nnx.Param(jnp.ones(3))
        model.name = "new"
        if when == "trace":
            raise KeyboardInterrupt
        return jax.pure_callback(check, jax.ShapeDtypeStruct((), jnp.float32), fails)

    jitted = partax.nnx.jit(step)
    if when == "hit":
        jitted(Model(), jnp.array(False))
    with pytest.raises((KeyboardInterrupt, RuntimeError, ValueError)):  # jax's own are of either kind
        jax.block_until_ready(jitted(model, jnp.array(True)))
    assert described(model) == described(Model())


def become(model: Any) -> None:
    grow(model.weight)
    model.__class__ = Net


CANNOT_BE_SET: dict[str, Callable[[Any], Any]] = {
    "static attribute 'name'": lambda model: setattr(model, "name", model.weight[...]),
    "Expected a node of type": become,
}


@pytest.mark.parametrize("told", CANNOT_BE_SET)
def test_a_new_value_that_cannot_be_set_changes_nothing(told: str) -> None:
    model = Model()
    model.name = "a"
    with pytest.raises(ValueError, match=told):
        partax.nnx.jit(CANNOT_BE_SET[told])(model)
    assert model.name == "a" and model.weight[0] == 1


@pytest.mark.slow
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
    interrupted, Stop = 0, type("Stop", (BaseException,), {})

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


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda model: model(jnp.ones((1, 2))), "model.drop.rngs.count"),
        (lambda model: model.norm(jnp.ones((1, 2))), "model.norm.mean"),
        (lambda model: model.norm.eval(), "model.norm.use_running_average"),
        (lambda model: grow(model.layers[0].kernel), "model.layers[0].kernel"),
        (lambda model: setattr(model, "mode", "test"), "model.mode"),
        (lambda model: setattr(model.layers[0], "fresh", nnx.Param(jnp.ones(1))), "model.layers[0].fresh"),
        (lambda model: delattr(model, "norm"), "model.norm"),
        (lambda model: model.layers[0].kernel.set_metadata(tag=1), "model.layers[0].kernel.tag"),
    ],
)
def test_a_lost_change_is_an_error_with_its_path(change: Callable[[Any], Any], path: str) -> None:
    function, model = partax.filter_jit(lambda model: change(model)), Net(nnx.Rngs(0))
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"`{re.escape(path)}`.*partax\.nnx\.jit"):
            function(model)
    assert float(model.norm.mean[...].sum()) == 0


def test_a_variable_in_a_container_and_in_a_node_that_cannot_name_its_children() -> None:
    read = partax.filter_jit(lambda tree: tree.children[0][...] + 1)
    assert float(read(Nameless((nnx.Param(jnp.ones(())),)))) == 2
    for make, path in (
        (lambda it: Nameless((it,)), r"tree\[<flat index 0>\]"),
        (lambda it: {"a": [it]}, r"tree\['a'\]\[0\]"),
    ):
        function = partax.filter_jit(
            lambda tree: grow(jax.tree.leaves(tree, is_leaf=lambda it: isinstance(it, nnx.Param))[0])
        )
        with pytest.raises(ValueError, match=rf"`{path}`.*partax\.nnx\.jit"):
            function(make(nnx.Param(jnp.ones(1))))


def test_what_is_returned_is_not_lost() -> None:
    step = partax.filter_jit(lambda model, x: (model(x), model)[1])
    assert float(step(Net(nnx.Rngs(0)), jnp.ones((1, 2))).norm.mean[...].sum()) != 0
    value = partax.filter_jit(lambda variable: (grow(variable), {"new": variable[...]})[1])
    assert value(nnx.Param(jnp.ones(())))["new"] == 2


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
