"""Operations on wrappers: calls that hit, trace, compile or raise, and the life of a wrapper."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from case import Case, operation, raising, returning

import trees
from partax import filter_jit

X = trees.array(2)


def hit(f: Any, *calls: Callable[[], Any], watched: tuple[Any, ...] = ()) -> Case:
    """Calls that must find their programs."""
    state = lambda: f.cache_info()._replace(hits=0)
    run = lambda: ([call() for call in calls], *state())
    run()
    return returning(run, *watched, f, state=state)


@operation
def hit_with_one_array() -> Case:
    f, x = filter_jit(trees.add_one, reuse_equal_functions=False), trees.array(3)
    return returning(lambda: f(x), x, f, state=lambda: f.cache_info()._replace(hits=0), allocates=False)


@operation
def hit_with_every_family() -> Case:
    trees_by_name = {name: make() for name, make in trees.SAMPLES.items() if name != "module_absent"}
    argument = [trees_by_name, [trees.array(1) for _ in range(200)]]
    f = filter_jit(trees.add_one)
    return hit(f, lambda: f(argument), watched=(argument, *argument[1]))


@operation
def hit_with_bound_arguments() -> Case:
    f = filter_jit(lambda tree, x: trees.add_one((tree, x)))
    bound = f.bind((trees.make_model(), trees.SAMPLES["optax_chain"](), [trees.array(1), *range(100)]))
    for _ in range(4):  # the calls that it learns from
        bound(X)
    return hit(f, lambda: bound(X), watched=(bound, X))


@operation
def first_call_with_bound_arguments() -> Case:
    f, tree = filter_jit(trees.add_one), trees.make_model()
    f(tree)
    return returning(lambda: f.bind(tree)(), f, keeps_memory=True)


@operation
def hit_with_arguments_in_every_form() -> Case:
    @filter_jit
    def f(x: Any, /, a: Any, b: Any = 2, *rest: Any, key: Any = "k", **more: Any) -> Any:
        return x + a, b, rest, key, more

    in_odd_order = lambda: f(b=3, a=X, *(X,))  # noqa: B026 - the order is under test
    return hit(f, lambda: f(X, a=1), lambda: f(X, 1, 2, 3, 4, key="other", z=X, y=5), in_odd_order, watched=(X,))


@operation
def hit_that_forwards_arrays() -> Case:
    f = filter_jit(lambda x, y: (x, {"y": y, "sum": x + y}))
    x, y = np.ones(2, np.float32), np.arange(2, dtype=np.float32)
    return hit(f, lambda: f(x, y), watched=(x, y))


# --- traces


def has_complete_keys(f: Any) -> Callable[[], bool]:
    """Every static key has a trace."""
    return lambda: f.cache_info().static_keys <= f.cache_info().traces


@operation
def slow_first_call() -> Case:
    f = filter_jit(trees.add_one, reuse_equal_functions=False)
    tree = {"model": trees.make_model(1), "n": [1, 2, "x"], "bag": trees.Bag(trees.array(1), label=[1])}
    return returning(lambda: f(tree), tree, f, prepare=f.clear_cache, state=has_complete_keys(f))


@operation
def first_call_that_returns_parts_of_its_arguments() -> Case:
    f = filter_jit(lambda tree: (tree.left, tree.right[0], tree.right[1], [1, tree.right[0]]))
    tree = trees.Pair(trees.make_model(), [trees.Layer(trees.array(2)), (trees.array(1), "s")])

    def run() -> Any:
        model, layer, pair, parts = f(tree)
        return layer is tree.right[0], pair is tree.right[1], parts[1] is tree.right[0], model is tree.left, model

    return returning(run, tree, *tree.right, f, prepare=f.clear_cache)


def adder(n: Any) -> Callable[[Any], Any]:
    return lambda x: x + n


@operation
def slow_first_call_with_weakly_referenced_values_in_a_full_cache() -> Case:
    f = filter_jit(lambda x, n, values: x + n, cache_size=2)
    alive: list[Any] = []

    def prepare() -> None:
        alive.clear()
        f.clear_cache()
        f(X, 1, adder(1))
        f(X, 2, None)

    def run() -> Any:
        alive[:] = [type("Local", (), {}), adder(object()), X]
        return f(X, 3, alive), f.cache_info().static_keys

    prepare()
    return returning(run, X, f, prepare=prepare)


@operation
def slow_lower_compile_and_call() -> Case:
    f = filter_jit(lambda tree, n: {"y": tree["x"] * n, "n": n})
    run = lambda: f.lower({"x": X}, n=3).compile()({"x": X}, n=3)
    return returning(run, X, f, prepare=f.clear_cache, state=has_complete_keys(f))


@operation
def error_of_a_compiled_call() -> Case:
    compiled = filter_jit(lambda tree, n: {"y": tree["x"] * n, "n": n}).lower({"x": X}, 3).compile()
    return raising(TypeError, "n", lambda: compiled({"x": X}, 4), X, compiled)


@operation
def eval_shape() -> Case:
    f = filter_jit(lambda tree: (tree["x"] * 2, 1))
    x = jax.ShapeDtypeStruct((2,), np.float32)
    return returning(lambda: f.eval_shape({"x": x}), f, state=has_complete_keys(f))


# --- the life of a wrapper


@operation
def new_wrappers() -> Case:
    def run() -> Any:
        local = object()
        first, equal = filter_jit(lambda x: (x, local), reuse_equal_functions=False), filter_jit(adder(1))
        return equal._cache is filter_jit(adder(1))._cache, first.cache_info().static_keys

    return returning(run)


@operation
def copies_and_attributes_of_a_wrapper() -> Case:
    wrapper = filter_jit(trees.double)

    def run() -> Any:
        leaves, treedef = jax.tree.flatten(wrapper)
        copies = [copy.copy(wrapper), pickle.loads(pickle.dumps(wrapper)), jax.tree.unflatten(treedef, leaves)]
        return [one.__wrapped__ is trees.double for one in copies], wrapper.__name__, repr(wrapper), wrapper.__doc__

    return returning(run, state=wrapper.cache_info)


@operation
def functions_that_are_freed() -> Case:
    functions: list[Any] = []

    def prepare() -> None:
        witness = trees.Bag(1)
        functions[:] = [adder(1), lambda x: (x, witness)]
        for function in functions:
            filter_jit(function)(X)

    def run() -> Any:
        references = [weakref.ref(function) for function in functions]
        functions.clear()
        gc.collect()
        return [reference() for reference in references if reference() is not None]

    return returning(run, X, prepare=prepare)


# --- errors


def refused(kind: type[Exception], text: str, value: Any, **options: Any) -> Case:
    f = filter_jit(lambda x: x, **options)
    f([1])
    return raising(kind, text, lambda: f(value), value, f, state=f.cache_info)


@operation
def error_for_an_array_in_a_static_field() -> Case:
    model = trees.make_model()
    object.__setattr__(model.layers[1], "scale", trees.array(1))
    return refused(TypeError, "x.layers[1].scale", model)


@operation
def slow_error_for_an_array_that_a_sharding_does_not_fit() -> Case:
    sharding = jax.sharding.NamedSharding(jax.make_mesh((1,), ("d",)), jax.sharding.PartitionSpec("d"))
    return refused(ValueError, "`x['w']`", {"w": trees.array()}, in_shardings=sharding)


# --- objects of Flax

if find_spec("flax") is not None:

    @operation
    def nnx_call_that_sets_all_variables_or_none() -> Case:
        from flax import nnx

        import partax.nnx

        model = nnx.List([nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.Dict(a=nnx.Param(X))])
        variables = lambda: [one for _, one in nnx.iter_graph(model) if isinstance(one, nnx.Variable)]

        @partax.nnx.jit
        def set_values(model: Any, x: jax.Array) -> jax.Array:
            model[1].a = nnx.Param(x + 1)
            for variable in (model[0].kernel, model[0].bias, model[1].a):
                variable[...] = jnp.full(variable.shape, x[0] + 1)
            return x + 1

        def prepare() -> None:
            for variable in variables():
                variable.set_raw_value(jnp.zeros_like(variable.get_raw_value()))

        def check(value: Any) -> None:
            assert jnp.array_equal(value, X[0] + jnp.arange(1, 3)), value
            assert all(jnp.all(variable.get_raw_value() == X[0] + 1) for variable in variables()), "not all are changed"
            assert set_values.cache_info().traces == traces, "traced again"

        def state() -> Any:
            return [(id(variable), id(variable.get_raw_value())) for variable in variables()]

        for _ in range(3):
            set_values(model, X)
        traces = set_values.cache_info().traces
        return Case(lambda: set_values(model, X), check, state=state, prepare=prepare, watched=(model, set_values, X))
