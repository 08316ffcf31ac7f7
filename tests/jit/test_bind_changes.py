"""Guards the promise that a bound array, or object that can be changed, counts as it was, and a function or other
static value as in any call."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from trees import Bag, Cell, Pair


class Linear(eqx.Module):
    weight: Any
    act: Any = eqx.field(static=True, default=jnp.tanh)


HOLDING = {
    "itself": lambda it: it,
    "list": lambda it: [it],
    "dict": lambda it: {"a": (it,)},
    "NamedTuple": lambda it: Pair(it, 0.0),
    "module": lambda it: Linear(it),
}


@pytest.mark.parametrize("hold", HOLDING.values(), ids=HOLDING)
@pytest.mark.parametrize("by_name", [False, True])
def test_numpy_arrays_count_as_they_were(hold: Any, by_name: bool) -> None:
    step = partax.filter_jit(lambda tree, x: sum(it * x for it in jax.tree.leaves(tree)))
    array = np.ones((2, 3), "f4")
    tree = hold(array[0])  # a view, which changes with its base
    bound = step.bind(tree=tree) if by_name else step.bind(tree)
    again = bound.rebind(tree=hold(array[1]))
    for value in (2, 3, 4):
        for x in (jnp.ones(3), jnp.ones((value, 3))):
            assert bound(x=x).ravel()[0] == again(x=x).ravel()[0] == 1
        array[:] = value


class Scaling(Cell):
    def __call__(self, x: Any) -> Any:
        return self.weight * x

    step = partax.filter_jit(__call__)


jax.tree_util.register_dataclass(Scaling, ["weight", "bias"], ["mode"])


@pytest.mark.parametrize("wrapped", [partax.filter_jit, lambda it: it.step, lambda it: partax.filter_jit(it.__call__)])
@pytest.mark.parametrize("make", [jnp.full, np.full], ids=["jax", "NumPy"])
def test_a_callable_that_changes_counts_as_in_any_call(wrapped: Any, make: Any) -> None:
    """It is no argument; and whatever the cache has, it counts in the same way."""
    held = Scaling(make(3, 2.0, "float32"))
    bound = wrapped(held).bind()
    for value in (3.0, 4.0, 5.0):
        held.weight = make(3, value, "float32")
        for x in (jnp.ones(3), jnp.ones((int(value), 3)), jnp.ones(3)):
            assert float(bound(x).ravel()[0]) == value
    bound.func.clear_cache()
    assert float(bound(jnp.ones(3))[0]) == 5


def test_objects_that_change_count_as_they_were_and_others_come_back() -> None:
    inner, shared = Linear(jnp.ones(3)), {"b": [jnp.ones(3)]}
    given = {"changeable": Cell(jnp.ones(3), mode=["a"]), "models": [inner], "shared": shared, "none": None}
    bound = partax.filter_jit(lambda tree, x: (tree["models"][0], tree["changeable"].weight * x, tree)).bind(given)
    first = bound(jnp.ones(3))
    given["changeable"].weight = jnp.full(3, 7.0)  # type: ignore[union-attr]
    shared["b"].append(jnp.ones(3))
    given["more"] = [jnp.ones(2)]
    for x in (jnp.ones(3), jnp.ones((2, 3))):
        for _ in range(3):
            found, product, tree = bound(x)
            assert found is inner and float(product.ravel()[0]) == 1
            assert jax.tree.structure(tree) == jax.tree.structure(first[2])
    assert list(bound.args[0]) == ["changeable", "models", "shared", "none"]


def scaled_by(held: list[float]) -> Any:
    return lambda x, w=1.0: w * x * held[0]


def put(find: Callable[[Any], Any]) -> Callable[[Any, float], Any]:
    """Changes the first of what is found in a value."""
    return lambda it, k: find(it).__setitem__(0, k)


# A value to be bound, how the step takes its factor of it, and how the factor is changed.
CHANGING: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any, float], Any]]] = {
    "set": (lambda: {2.0}, max, lambda it, k: (it.clear(), it.add(k))),
    "static field": (lambda: Linear(jnp.ones(3), [2.0]), lambda it: it.act[0], put(lambda it: it.act)),
    "aux data": (
        lambda: Linear(Bag(jnp.ones(3), label=[2.0])),
        lambda it: it.weight.label[0],
        put(lambda it: it.weight.label),
    ),
}


@pytest.mark.parametrize(("make", "factor_of", "change"), CHANGING.values(), ids=CHANGING)
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_static_values_count_as_in_any_call(make: Any, factor_of: Any, change: Any, calls: int) -> None:
    """Whether the program is known by then, and for arrays that it is not known for."""
    step, value = partax.filter_jit(lambda value, x: x * factor_of(value)), make()
    bound = step.bind(value)
    for factor in (2.0, 3.0, 2.0):
        change(value, factor)
        for x in (jnp.ones(3), jnp.ones((2, 3)), *[jnp.ones(3)] * calls, jnp.ones(int(factor))):
            assert float(bound(x).ravel()[0]) == factor


def test_what_a_bound_function_holds_is_that_of_its_trace() -> None:
    """As in `jax.jit`: the same function object is the same function."""
    held = [2.0]
    wrapper, by_jax, x = partax.filter_jit(scaled_by(held)), jax.jit(scaled_by(held)), jnp.ones(())
    bound = wrapper.bind(x)
    for value in (2.0, 3.0):
        held[0] = value
        assert float(bound(x)) == float(wrapper(x, x)) == float(by_jax(x, x)) == 2
    wrapper.clear_cache()
    assert float(bound(x)) == 3
