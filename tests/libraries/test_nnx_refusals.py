"""Guards the promise that what nnx.jit refuses is refused with the same error and a path, and changes nothing; and that
plain filter_jit never loses silently what its function does to an nnx object; and that an object in two places never
comes apart: a filter_ function refuses it with both paths, and partax.nnx.jit keeps it one."""

import gc
import re
import signal
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import partax
import partax.nnx
from nnx_graphs import described


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
    def read(args: Any) -> Any:
        return args["a"][0][...] * 2

    # Of a reference too, which is not an array; in arguments, and those that a switch of Flax makes.
    for options in ({}, {"ref": True}):
        with nnx.var_defaults(hijax=True):
            args = {"a": [nnx.Param(jnp.ones(2), **options)]}
        for jit in (partax.filter_jit, partax.nnx.jit, lambda fun: partax.nnx.jit(fun, graph=False)):
            with pytest.raises(TypeError, match=r"hijax.*expected one with hijax=False; create it so, or") as caught:
                jit(read)(args)
            assert "`args['a'][0]`" in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def test_jit_accepts_the_hijax_variables_that_jax_accepts() -> None:
    variable = nnx.Param(jnp.ones(2), hijax=True)
    try:
        expected = jax.jit(lambda x: x[...] * 2)(variable)
    except Exception as error:
        with pytest.raises(type(error)):
            partax.jit(lambda x: x[...] * 2)(variable)
        return
    np.testing.assert_array_equal(partax.jit(lambda x: x[...] * 2)(variable), expected)


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


# ---- In two places.

X = jnp.ones(2)


class Tied(nnx.Module):
    def __init__(self, tie: Callable[[Any], Any]) -> None:
        self.a, self.b = (nnx.Linear(2, 2, rngs=nnx.Rngs(i)) for i in range(2))
        tie(self)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.b(self.a(x)).sum()


def tied_module() -> Tied:
    return Tied(lambda net: setattr(net, "b", net.a))


def tied_list() -> nnx.List[Any]:
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    return nnx.List([layer, layer])


def two_in_a_tree() -> dict[str, Any]:
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    return {"a": layer, "b": [layer]}


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str, str]] = {
    "module": (tied_module, lambda net: net(X), "net.b", "net.a"),
    "variable": (
        lambda: Tied(lambda net: setattr(net.b, "kernel", net.a.kernel)),
        lambda net: net(X),
        "net.b.kernel",
        "net.a.kernel",
    ),
    "list": (tied_list, lambda net: net[1](net[0](X)).sum(), "net[1]", "net[0]"),
    "tree": (two_in_a_tree, lambda net: net["b"][0](net["a"](X)).sum(), "net['b'][0]", "net['a']"),
}
TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "filter_jit": partax.filter_jit,
    "filter_grad": partax.filter_grad,
    "filter_value_and_grad": partax.filter_value_and_grad,
    "filter_jit of filter_grad": lambda f: partax.filter_jit(partax.filter_grad(f)),
    "filter_jacrev": partax.filter_jacrev,
    "filter_checkpoint": partax.filter_checkpoint,
    "filter_vmap": lambda f: partax.filter_vmap(f, in_axes=None, axis_size=2),
    "filter_vjp": lambda f: lambda net: partax.filter_vjp(lambda net: f(net), net),
    "filter_eval_shape": lambda f: lambda net: partax.filter_eval_shape(lambda net: f(net), net),
}


@pytest.mark.parametrize(
    ("case", "transformed"), [*((case, "filter_grad") for case in CASES), *(("module", name) for name in TRANSFORMED)]
)
def test_it_is_refused_with_both_paths(case: str, transformed: str) -> None:
    make, use, second, first = CASES[case]
    for jit in (lambda f: f, partax.nnx.jit):
        with pytest.raises(ValueError, match=re.escape(f"`{second}`: found the `")) as caught:
            jit(TRANSFORMED[transformed](lambda net: use(net)))(make())
        assert f"that is `{first}` too" in str(caught.value) and "partax.nnx.jit" in str(caught.value)


def test_in_loops_and_branches() -> None:
    net = tied_module()
    for call in (
        lambda: partax.filter_cond(jnp.array(True), lambda net: net(X), lambda net: X.sum(), net),
        lambda: partax.filter_scan(lambda net, _: (net, net(X)), net, length=2),
        lambda: partax.filter_fori_loop(0, 2, lambda _, net: net, net),
        lambda: partax.filter_while_loop(lambda net: net(X) > 1e9, lambda net: net, net),
    ):
        with pytest.raises(ValueError, match=r"\.b`: found the `Linear` that is `.*\.a` too"):
            call()


def in_turn(net: Any, other: Any) -> Any:
    return other(net(X)).sum()


def test_two_arguments_and_two_layers() -> None:
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="`other`: found the `Linear` that is `net` too"):
        partax.filter_grad(in_turn)(layer, layer)
    with pytest.raises(ValueError, match="`other`: found the `Linear` that is `net` too"):
        partax.filter_jit(in_turn)(layer, other=layer)
    with pytest.raises(ValueError, match=r"`layers\[1\]`: found the `Linear` that is `layers\[0\]` too"):
        partax.scan_layers([layer, layer], X)


@pytest.mark.parametrize("case", CASES)
def test_nnx_jit_keeps_it_one(case: str) -> None:
    make, use, _, _ = CASES[case]

    def gradients(net: Any) -> Any:
        return nnx.grad(use)(net)

    ours, theirs = partax.nnx.jit(gradients)(make()), nnx.jit(gradients)(make())
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_equal_objects_and_shared_arrays_are_no_shared_objects() -> None:
    one = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    other = nnx.clone(one)
    other.kernel = nnx.Param(one.kernel[...])
    gradient = partax.filter_grad(in_turn)(one, other)
    right = nnx.grad(in_turn)(one, other)
    np.testing.assert_allclose(gradient.kernel[...], right.kernel[...], rtol=1e-5)
    array = jnp.ones(2)

    def product(tree: Any) -> Any:
        return (tree["a"] * tree["b"]).sum()

    both: Any = partax.filter_grad(product)({"a": array, "b": array})
    assert both["a"][0] == both["b"][0] == 1
