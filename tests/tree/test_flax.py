"""Guards the promise that objects of Flax are read and made without Python, never otherwise than by Flax itself, and
that nothing of them is taken for what it was."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import partax
from called_functions import called_functions
from reference import assert_exact
from trees import add_one

pytestmark = pytest.mark.filterwarnings("ignore::partax.RetraceWarning")  # the numbers are static on purpose

flax = pytest.importorskip("flax", reason="Flax is not here")
nnx = pytest.importorskip("flax.nnx", reason="Flax is not here")
frozen_dict = pytest.importorskip("flax.core.frozen_dict", reason="Flax is not here")


class Block(nnx.Module):
    def __init__(self, rngs: Any, num_layers: int = 2) -> None:
        self.linear = nnx.Linear(2, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(num_layers)])
        self.table = nnx.Dict(b=nnx.Param(jnp.ones(2)), a=nnx.Linear(1, 1, rngs=rngs))
        self.act = nnx.relu
        self.scale = 2


def block(num_layers: int = 2) -> Any:
    return Block(nnx.Rngs(0), num_layers)


def with_metadata() -> Any:
    return nnx.Param(jnp.ones(3), notes=["x", {"y": 1}], limit=float("nan"))


OBJECTS: dict[str, Callable[[], Any]] = {
    "module": lambda: block(12),  # in the order of "10" and "2"
    "optimizer": lambda: nnx.Optimizer(block(), optax.adam(0.1), wrt=nnx.Param),
    "variable": with_metadata,
    "variable of a tree": lambda: nnx.Variable({"b": jnp.ones(1), "a": (jnp.zeros(2), 3)}),
    "flat state": lambda: nnx.to_flat_state(nnx.state(block())),
    "split": lambda: nnx.split(block()),
    "FrozenDict": lambda: frozen_dict.freeze({"b": {"y": jnp.ones(2), "x": jnp.zeros(1)}, "a": jnp.ones(3)}),
}
objects = pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)


@objects
def test_equal_objects_made_anew_share_a_trace_and_no_function_of_flax_runs_on_a_hit(
    make: Callable[[], Any], traces: Any
) -> None:
    step = partax.filter_jit(lambda tree: (traces.tick(), add_one(tree))[1])
    for _ in range(3):
        tree = make()
        assert_exact(step(tree), add_one(tree))
    # From the second call on the order of the attributes is known.
    result = step(step(tree))
    called = called_functions(lambda: step(result), flax)
    # A variable knows the trace that it was made in, which is asked for once a call.
    assert len(called) <= 2 and [name for name in called if "trace" not in name.lower()] == []
    assert traces.count == 1


def test_attributes_set_in_another_order_share_a_trace(traces: Any) -> None:
    class Pair(nnx.Module):
        def __init__(self, swapped: bool) -> None:
            for name in ("second", "first") if swapped else ("first", "second"):
                setattr(self, name, nnx.Param(jnp.full(2, float(name == "first"))))

    first = partax.filter_jit(lambda pair: (traces.tick(), pair.first[...])[1])
    for swapped in (False, True, True, False, True, False):
        assert first(Pair(swapped)).tolist() == [1.0, 1.0]
    assert traces.count == 1


CHANGES: dict[str, Callable[[Any], None]] = {
    "a static attribute": lambda m: setattr(m, "scale", 2.0),
    "a new attribute": lambda m: setattr(m, "more", 1),
    "an attribute less": lambda m: delattr(m, "act"),
    "another submodule": lambda m: setattr(m, "linear", nnx.Linear(2, 3, use_bias=False, rngs=nnx.Rngs(0))),
    "a longer list": lambda m: m.layers.append(nnx.Linear(2, 2, rngs=nnx.Rngs(0))),
    "eval mode": lambda m: m.eval(),
    "metadata": lambda m: m.linear.kernel.set_metadata(tag=1),
    "the type of a variable": lambda m: setattr(m.linear, "bias", nnx.Variable(m.linear.bias[...])),
    "a variable that holds a tree": lambda m: m.linear.bias.set_value({"a": jnp.ones(3)}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_in_place_is_traced_again(change: Callable[[Any], None], traces: Any) -> None:
    model = block()
    leaves = partax.filter_jit(lambda model: (traces.tick(), jax.tree.leaves(model))[1])
    leaves(model)
    change(model)
    found, expected = ([x for x in it if isinstance(x, jax.Array)] for it in (leaves(model), jax.tree.leaves(model)))
    assert traces.count == 2
    assert all(a is b for a, b in zip(found, expected, strict=True))


def test_variables_of_a_trace_and_of_its_result_can_be_written() -> None:
    @partax.filter_jit
    def doubled(variable: Any) -> Any:
        variable.set_value(variable.get_value() * 2)
        return variable

    param = nnx.Param(jnp.ones(2))
    result = doubled(doubled(param))
    assert result.get_value().tolist() == [4.0, 4.0] and param.get_value().tolist() == [1.0, 1.0]
    result.set_value(jnp.zeros(2))  # Flax refuses that for a variable of another trace

    @jax.jit
    def outer(x: jax.Array) -> Any:
        inner = doubled(nnx.Param(x))
        inner.set_value(inner.get_value() + 1)
        return inner

    assert outer(jnp.ones(2)).get_value().tolist() == [3.0, 3.0]
