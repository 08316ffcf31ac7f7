"""Guards the promise that steps which change objects of Flax in place give in one call what they give one by one."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import partax
import partax.nnx


class Model(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0, dropout=1)
        self.first, self.second = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)
        self.norm, self.dropout = nnx.BatchNorm(8, rngs=rngs), nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(self.dropout(jnp.tanh(self.norm(self.first(x)))))


def train(model: Model, optimizer: Any, x: Any, y: Any) -> Any:
    value, gradient = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
    optimizer.update(model, gradient)
    return {"loss": value, "name": "train"}


def objects() -> tuple[Any, Any]:
    model = Model()
    return model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)


def batches(count: int) -> list[Any]:
    chance = np.random.default_rng(0)
    return [(chance.normal(size=(6, 4)).astype("f4"), chance.normal(size=(6, 1)).astype("f4")) for _ in range(count)]


@pytest.mark.parametrize("donated", [None, ("model", "optimizer")])
@pytest.mark.parametrize("count", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_train_step(count: int, donated: Any) -> None:
    pair, other = objects(), objects()
    model, kernel = pair[0], pair[0].first.kernel
    run = partax.scan_steps(partax.nnx.jit(train, donate_argnames=donated), 4)
    found = [value for result in run(*pair, over=batches(count)) for value in result["loss"].tolist()]
    one = nnx.jit(lambda model, optimizer, x, y: train(model, optimizer, x, y)["loss"])
    right = [float(one(*other, *batch)) for batch in batches(count)]
    states = [
        [it for it in jax.tree.leaves(nnx.state(its)) if jnp.issubdtype(it.dtype, float)] for its in (pair, other)
    ]
    for one, two in zip([found, *states[0]], [right, *states[1]], strict=True):
        assert np.allclose(one, two, rtol=2e-3, atol=2e-4)
    assert pair[0] is model and model.first.kernel is kernel


def test_what_is_returned_is_carried_beside_the_objects() -> None:
    def step(model: Counting, count: dict[str, Any], x: Any) -> Any:
        model.count[...] += 2
        return x.sum(), {"count": count["count"] + 1}

    model, first = Counting(), {"count": jnp.zeros((), int)}
    run = partax.scan_steps(partax.nnx.jit(step), 4, carry={"count": 1})
    counts = [int(count["count"]) for _, count in run(model, first, over=[np.ones(2, "f4")] * 10)]
    assert counts == [4, 8, 10] and int(model.count[...]) == 20


# What a step does to its model beside giving its Variables other values; also where the values are then as right.
BESIDE: dict[str, Callable[[Any], Any]] = {
    "another number": lambda model: setattr(model, "number", model.number + 1),
    "a Variable more": lambda model: setattr(model, "more", nnx.Param(jnp.ones(2))),
    "a Variable in the place of one": lambda model: setattr(model, "first", nnx.Param(model.first[...] + 1)),
    "two exchanged": lambda model: model.__dict__.update(first=model.last, last=model.first),
    "metadata": lambda model: model.first.set_metadata(note=1),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_step_that_changes_more_than_values_is_refused(name: str) -> None:
    class Two(nnx.Module):
        def __init__(self) -> None:
            self.first, self.last, self.number = nnx.Param(jnp.ones(2)), nnx.Param(jnp.zeros(2)), 1

    model = Two()
    before = nnx.graphdef(model), model.first, model.last
    run = partax.scan_steps(partax.nnx.jit(lambda model, x: (BESIDE[name](model), x)[1]), 2)
    with pytest.raises(TypeError, match=r"`model` .* `model\.(first|more|number)"):
        list(run(model, over=[np.ones(2, "f4")] * 4))
    assert (nnx.graphdef(model), model.first, model.last) == before


def written(net: nnx.Linear, batch: Any) -> Any:
    for variable in jax.tree.leaves(batch, is_leaf=lambda it: isinstance(it, nnx.Variable)):
        if isinstance(variable, nnx.Variable):
            variable[...] *= 9
    net.kernel[...] += 1


IN_A_BATCH: dict[str, tuple[Any, str]] = {
    "a Variable": (lambda: nnx.Variable(jnp.ones(2)), r"`batch\['batch'\]`"),
    "in a dictionary": (lambda: {"a": [nnx.Param(jnp.ones(2))]}, r"`batch\['batch'\]\['a'\]\[0\]`"),
    "a module": (lambda: [nnx.Linear(2, 1, rngs=nnx.Rngs(0))], r"`batch\['batch'\]\[0\]`"),
    "no pytree": (type("Plain", (nnx.Object,), {}), r"`batch\['batch'\]`"),
}


@pytest.mark.parametrize("name", IN_A_BATCH)
@pytest.mark.parametrize("count", [1, 3])
def test_objects_in_a_batch_are_refused(name: str, count: int) -> None:
    made, message = IN_A_BATCH[name]
    net = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    before = np.asarray(net.kernel[...])
    with pytest.raises(TypeError, match=f"{message}: found an object of Flax in a batch"):
        list(partax.scan_steps(partax.nnx.jit(written), 2)(net, over=[made() for _ in range(count)]))
    assert (net.kernel[...] == before).all()


class Counting(nnx.Module):
    def __init__(self) -> None:
        self.count = nnx.Variable(jnp.array(0))

    @partax.nnx.jit
    def step(self, state: Any, x: Any) -> Any:
        self.count[...] += 1
        return {"w": state["w"] + x + self.count[...]}, x

    __call__ = step


def test_an_object_that_the_step_belongs_to_is_given_to_it() -> None:
    owner, other, state = Counting(), Counting(), {"w": jnp.zeros(2)}
    for step in (owner.step, partax.nnx.jit(owner)):
        with pytest.raises(TypeError, match=r"`step`: found a method of a `Counting`"):
            partax.scan_steps(step, 2)
    over = [np.ones(2, "f4")] * 5
    *_, (found, _) = partax.scan_steps(Counting.step, 2)(owner, state, over=over)
    for x in over:
        state, _ = other.step(state, x)
    assert (found["w"] == state["w"]).all() and int(owner.count[...]) == int(other.count[...]) == 5


def test_an_argument_that_is_returned_is_refused() -> None:
    """Where a chunk could only give a copy of it, with one entry for each step in its arrays."""

    def step(model: Any, x: Any) -> Any:
        model.count[...] += 1
        return x, {"model": model, "count": model.count}

    model, over = Counting(), [np.ones(2, "f4")] * 2
    with pytest.raises(TypeError, match=r"`result\[1\]\['model'\]`: found an object of Flax"):
        list(partax.scan_steps(partax.nnx.jit(step), 2)(model, over=over))
    [(_, counts)] = partax.scan_steps(partax.nnx.jit(lambda model, x: (x, step(model, x)[1]["count"])), 2)(
        model, over=over
    )
    assert counts[...].tolist() == [1, 2] and int(model.count[...]) == 2


def test_two_results_for_one_argument_are_refused() -> None:
    step, one = lambda model, ema, x: ({"w": ema["w"]}, {"w": x}), jnp.ones(2)
    with pytest.raises(ValueError, match="of the structure and types of `ema`"):
        list(partax.scan_steps(partax.nnx.jit(step), 2)(Model(), {"w": one}, over=[one] * 4))


def test_functional_state_under_filter_jit() -> None:
    def step(graph: Any, state: Any, x: Any) -> Any:
        model = nnx.merge(graph, state)
        model.bias[...] += x
        return nnx.state(model), model(x)

    graph, state = nnx.split(nnx.Linear(2, 2, rngs=nnx.Rngs(0)))
    jitted, over = partax.filter_jit(step), [np.ones(2, "f4")] * 5
    *_, (found, _) = partax.scan_steps(jitted, 2)(graph, state, over=over)
    for x in over:
        state, _ = jitted(graph, state, x)
    assert (found["bias"][...] == state["bias"][...]).all()
    with pytest.raises(TypeError, match=r"`result\[0\]\['bias'\]`: found an object of Flax"):
        list(partax.scan_steps(partax.nnx.jit(step), 2)(graph, state, over=over))


def test_carry_names_no_objects() -> None:
    run = partax.scan_steps(partax.nnx.jit(lambda model, x: x), 2, carry={"model": 0})
    with pytest.raises(ValueError, match=r"found 'model' in carry, expected"):
        list(run(Counting(), over=[np.ones(2, "f4")] * 2))
