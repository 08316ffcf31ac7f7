"""Guards the promise that a call with bound arguments gives what the call with all of them gives. Trees count as they
were when they were bound; functions and other static values as in any call."""

import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout

import partax
from deep_trees import self_containing
from reference import assert_exact
from trees import Cell


class Linear(eqx.Module):
    weight: Any
    bias: Any
    act: Any = eqx.field(static=True, default=jnp.tanh)

    def __call__(self, x: Any) -> Any:
        return self.act(self.weight * x + self.bias)


def model(value: float = 2.0, act: Any = jnp.tanh) -> Linear:
    return Linear(jnp.full(3, value, "float32"), jnp.arange(3.0), act)


def apply(model: Any, x: Any, by: Any = 1, *rest: Any, flag: str = "a", **more: Any) -> Any:
    return model(x) * by + sum(rest) + more.get("shift", 0), (flag, model.weight, x)


def double(weights: Any, x: Any) -> Any:
    return weights * x, 2


# The arguments of a call, those that are bound of them, and those that are given.
SPLITS: dict[str, tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...], dict[str, Any]]] = {
    "all": ((model(), jnp.ones(3)), {}, (), {}),
    "a later one by name": ((), {"by": jnp.full(3, 2.0)}, (model(), jnp.ones(3)), {}),
    "a static one": ((model(),), {"flag": "b"}, (jnp.ones(3),), {"by": 3}),
    "values of *rest": ((model(), jnp.ones(3), 2, jnp.ones(3)), {}, (jnp.ones(3), 4), {}),
    "NumPy": ((model(),), {"by": np.arange(3.0, dtype="f4")}, (np.ones(3, "f4"),), {}),
}


@pytest.mark.parametrize("name", SPLITS)
def test_each_way_to_split_the_arguments(name: str) -> None:
    args, keywords, free, given_names = SPLITS[name]
    step = partax.filter_jit(apply)
    step.clear_cache()
    right = step(*args, *free, **keywords, **given_names)
    bound = step.bind(*args, **keywords)
    for _ in range(4):
        assert_exact(bound(*free, **given_names), right)
    assert step.cache_info().traces == 1
    assert step.cache_info().hits == 4


def test_other_free_arguments_after_the_first_calls() -> None:
    step = partax.filter_jit(apply)
    held, ones = model(), jnp.ones(3)
    bound = step.bind(held)
    arrays = [ones, jnp.ones((2, 3)), jnp.ones(3, "bfloat16"), jnp.ones(3, int), np.ones(3, "f4")]
    arrays.append(jax.device_put(ones, jax.devices()[0]))
    calls = [*((x,) for x in arrays), *((ones, by) for by in (2, 2.0, jnp.float32(2), jnp.asarray(2.0)))]
    right = [step(held, *call) for call in calls]
    traces = step.cache_info().traces
    for _ in range(3):
        for call, expected in zip(calls, right, strict=True):
            assert_exact(bound(*call), expected)
    assert step.cache_info().traces == traces


def test_rebinding_traces_for_another_static_part_alone() -> None:
    step = partax.filter_jit(apply)
    step.clear_cache()
    bound, x, other = step.bind(model(), flag="a"), jnp.ones(3), model(3.0)
    for again in (bound, bound.rebind(model=other), bound.rebind(other)):
        assert_exact(again(x), apply(again.args[0], x))
    assert step.cache_info().traces == 1
    again = bound.rebind(model=model(3.0, jnp.sin), flag="b")
    assert np.allclose(again(x)[0], jnp.sin(3.0 * x + jnp.arange(3.0))) and again(x)[1][0] == "b"
    assert bound(x)[1][0] == "a" and step.cache_info().traces == 2


def test_under_transformations() -> None:
    bound, x = partax.filter_jit(double).bind(jnp.arange(3.0)), jnp.full(3, 2.0)
    for _ in range(3):
        bound(x)
        assert np.allclose(jax.jit(bound, donate_argnames="x")(x + 1)[0], [0, 3, 6])
        assert np.allclose(jax.grad(lambda x: bound(x)[0].sum())(x), [0, 1, 2])
        assert np.allclose(jax.vmap(lambda x: bound(x)[0])(jnp.ones((2, 3))), [[0, 1, 2]] * 2)
        with jax.disable_jit():
            assert np.allclose(bound(x)[0], [0, 2, 4])
    # Where no array is traced, and the program is known.
    assert isinstance(jax.eval_shape(lambda: bound(x)[0]), jax.ShapeDtypeStruct)
    inside = jax.jit(lambda weights, x: partax.filter_jit(double).bind(weights)(x)[0])
    assert np.allclose(inside(jnp.arange(3.0), x), [0, 2, 4])


def test_settings_of_jax_count_between_two_calls() -> None:
    bound, x = partax.filter_jit(lambda w, x: (w / x, jnp.zeros(2, int))).bind(jnp.zeros(3)), jnp.ones(3)
    for _ in range(3):
        assert bound(x)[1].dtype == "int32"
    with jax.enable_x64(True):
        assert bound(x)[1].dtype == "int64"
    assert bound(x)[1].dtype == "int32"
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        bound(jnp.zeros(3))
    assert np.isnan(bound(jnp.zeros(3))[0]).all()
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match="isallowed"):
        bound(np.ones(3, "f4"))


def test_what_is_free_is_donated_and_what_is_bound_is_refused_before_the_call() -> None:
    step = partax.filter_jit(lambda w, state: (w.sum(), state + w), donate=("state",))
    weight = jnp.ones(3)
    bound, state = step.bind(weight), jnp.zeros(3)
    for count in range(1, 5):
        before = state
        total, state = bound(state)
        assert before.is_deleted() and float(total) == 3 and float(state[0]) == count
    held, x = model(), jnp.ones(3)
    bound = partax.filter_jit(lambda model, x: model.weight * x, donate="all").bind(held)
    with pytest.raises(ValueError, match=r"`model.weight`: found an array that is bound.*donate"):
        bound(x)
    assert not weight.is_deleted() and not held.weight.is_deleted() and not x.is_deleted()


def test_a_bound_array_that_is_deleted_is_named() -> None:
    for num_calls in (0, 3):
        held = model()
        bound = partax.filter_jit(lambda model, x: model(x) * 2).bind(held)
        for _ in range(num_calls):
            bound(jnp.ones(3))
        held.bias.delete()
        with pytest.raises(RuntimeError, match="deleted") as error:
            bound(jnp.ones(3))
        assert "model.bias" in str(error.value) + "".join(getattr(error.value, "__notes__", []))
    assert np.allclose(bound.rebind(model())(jnp.ones(3)), model()(jnp.ones(3)) * 2)


def test_pickled_as_the_wrapper_and_what_is_bound() -> None:
    # Of an unpickled array of weak type jax tells two things: its dispatch takes one of strong type for it.
    for weights in (jnp.arange(3.0), jnp.asarray(2.0)):
        bound = partax.filter_jit(double).bind(weights)
        bound(jnp.ones(3))
        again = pickle.loads(pickle.dumps(bound))
        assert np.allclose(again(jnp.ones(3))[0], weights) and again.func.__wrapped__ is double
        assert "double" in repr(again) and "float32[" in repr(again)


def test_nothing_outlives_the_bound_function_and_no_free_argument_its_call() -> None:
    linear, x = model(), jnp.ones(3)
    bound = partax.filter_jit(lambda model, x: model(x) * 2).bind(linear)
    bound(x), bound(x)
    weight, free = weakref.ref(linear.weight), weakref.ref(x)
    del linear, x
    assert free() is None and weight() is not None
    del bound
    gc.collect()
    assert weight() is None


def test_arrays_over_several_devices_of_another_layout_and_keys(split: jax.NamedSharding) -> None:
    step = partax.filter_jit(lambda w, key, x: (w * x, jax.random.normal(key, (2,))))
    spread, x = (jax.device_put(array, split) for array in (jnp.arange(8.0), jnp.ones(8)))
    key = jax.random.key(1)
    right = step(spread, key, x)
    for bound, *free in ((step.bind(spread), key, x), (step.bind(spread, key), x)):
        for _ in range(3):
            assert_exact(bound(*free), right)
    # Committed ones: `jax.jit` takes all others for arrays of the layout that it expects.
    x, w = (jax.device_put(jnp.arange(6.0).reshape(2, 3) + i, jax.devices()[0]) for i in range(2))
    transposed = jax.device_put(x, Format(Layout((1, 0)), x.sharding))
    fun = lambda w, x: (w * x, w @ x.T, x.sum(0), x)
    bound = partax.filter_jit(fun).bind(w)
    for array in (x, x, transposed, transposed, x):
        assert_exact(bound(array), fun(w, array))


def test_a_program_with_callbacks_runs_them_in_each_call() -> None:
    seen: list[float] = []
    bound = partax.filter_jit(lambda w, x: jax.debug.callback(seen.append, w * x)).bind(jnp.float32(2))
    for _ in range(4):
        bound(jnp.float32(3))
    jax.effects_barrier()
    assert seen == [6.0] * 4


STEP = partax.filter_jit(double)
BOUND = STEP.bind(jnp.ones(3))
IN_ITSELF = self_containing()["list"]
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "an unknown name": (lambda: STEP.bind(weight=1), TypeError, "'weight'"),
    "a bound name again": (lambda: STEP.bind(weights=1)(weights=2, x=1), TypeError, "'weights', which is bound"),
    "too few in a call": (lambda: BOUND(), TypeError, "'x'"),
    "rebinding what is free": (lambda: BOUND.rebind(x=1), TypeError, "found 'x', expected .*: `weights`"),
    "rebinding twice": (lambda: BOUND.rebind(1, weights=2), TypeError, "found 'weights' by name and by position"),
    "rebinding too many": (lambda: BOUND.rebind(1, 2), TypeError, "found 2 arguments, expected at most 1"),
    "a list in itself": (lambda: STEP.bind(IN_ITSELF), RecursionError, "recursion"),
}


@pytest.mark.parametrize(("use", "error", "message"), WRONG.values(), ids=WRONG)
def test_wrong_uses_are_named(use: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        use()


def test_trees_and_arrays_count_as_they_were_when_they_were_bound() -> None:
    base, shared = np.ones((2, 3), "f4"), {"b": [jnp.ones(3)]}
    tree = {"view": base[0], "object": Cell(jnp.ones(3), mode=["a"]), "shared": shared}
    bound = partax.filter_jit(lambda tree, x: (tree["view"] * tree["object"].weight * x, tree)).bind(tree)
    structure = jax.tree.structure(bound(jnp.ones(3))[1])
    base[:] = 5
    tree["object"].weight = jnp.full(3, 7.0)  # type: ignore[union-attr]
    shared["b"].append(jnp.ones(3))
    tree["more"] = [jnp.ones(2)]  # type: ignore[assignment]
    for x in (jnp.ones(3), jnp.ones((2, 3))):
        for _ in range(3):
            product, returned = bound(x)
            assert float(product.ravel()[0]) == 1 and jax.tree.structure(returned) == structure


class Scaling(Cell):
    def __call__(self, x: Any) -> Any:
        return self.weight * x

    step = partax.filter_jit(__call__)


jax.tree_util.register_dataclass(Scaling, ["weight", "bias"], ["mode"])


def test_a_callable_that_changes_counts_as_in_any_call() -> None:
    for wrapped in (partax.filter_jit, lambda scaling: scaling.step):
        scaling = Scaling(np.full(3, 2.0, "f4"))
        bound = wrapped(scaling).bind()
        for value in (3.0, 4.0):
            scaling.weight = np.full(3, value, "f4")
            for x in (jnp.ones(3), jnp.ones((int(value), 3)), jnp.ones(3)):
                assert float(bound(x).ravel()[0]) == value


def test_static_values_count_as_in_any_call() -> None:
    values = [2.0]
    bound = partax.filter_jit(lambda linear, x: x * linear.act[0]).bind(Linear(jnp.ones(3), None, values))
    for factor in (2.0, 3.0, 2.0):
        values[0] = factor
        for x in (jnp.ones(3), jnp.ones((2, 3)), jnp.ones(3), jnp.ones(int(factor))):
            assert float(bound(x).ravel()[0]) == factor
