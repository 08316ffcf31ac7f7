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
    model.__class__ = nnx.Dict


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


@pytest.mark.parametrize(
    ("change", "name"), [(grow, r""), (lambda variable: variable.set_metadata(tag=1), r"\.tag")], ids=["value", "tag"]
)
def test_a_variable_in_a_container(change: Callable[[Any], Any], name: str) -> None:
    function = partax.filter_jit(lambda tree: change(tree["a"][0]))
    with pytest.raises(ValueError, match=rf"`tree\['a'\]\[0\]{name}`.*partax\.nnx\.jit"):
        function({"a": [nnx.Param(jnp.ones(1))]})


def test_a_model_made_of_a_state_may_change() -> None:
    graphdef, state = nnx.split(nnx.Dropout(0.5, rngs=nnx.Rngs(0)))
    function = partax.filter_jit(lambda state, x: nnx.merge(graphdef, state)(x))
    assert function(state, jnp.ones((1, 2))).shape == (1, 2)
