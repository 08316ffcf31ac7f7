"""Guards the promise that steps which run in one call give what they give one by one, whatever a step returns."""

import gc
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import partax
from transformed import assert_close_trees

optimizer = optax.sgd(1e-2, momentum=0.9)


def close(actual: Any, expected: Any) -> None:
    assert_close_trees(actual, expected, terms=2000)


class State(NamedTuple):
    params: Any
    opt: Any


def loss(model: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


def update(model: Any, opt: Any, x: Any, y: Any) -> Any:
    value, gradient = partax.filter_value_and_grad(loss)(model, x, y)
    updates, opt = optimizer.update(gradient, opt)
    return value, partax.apply_updates(model, updates), opt


def carry_first(model: Any, opt: Any, batch: Any) -> Any:
    value, model, opt = update(model, opt, *batch)
    return model, opt, value


def one_state(state: State, batch: Any) -> Any:
    value, params, opt = update(*state, *batch)
    return State(params, opt), {"loss": value, "name": "a"}


def only_state(batch: Any, state: State) -> Any:
    return State(*update(*state, *batch)[1:])


def by_name(opt: Any, *, x: Any, y: Any, model: Any) -> Any:
    value, model, opt = update(model, opt, x, y)
    return {"opt": opt, "metrics": (value, [value * 2]), "model": model}


def with_key(model: Any, opt: Any, key: Any, batch: Any) -> Any:
    key, own = jax.random.split(key)
    x, y = batch
    value, model, opt = update(model, opt, x + jax.random.normal(own, x.shape), y)
    return model, opt, key, value


def state() -> State:
    model = eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))
    return State(model, optimizer.init(eqx.filter(model, eqx.is_array)))


def batches(count: int) -> list[Any]:
    random = np.random.default_rng(0)
    return [(random.normal(size=(5, 3)).astype("f4"), random.normal(size=(5, 2)).astype("f4")) for _ in range(count)]


# A step, the arguments of the call after a result, and the names of its batch.
STEPS: list[tuple[Callable[..., Any], Callable[[Any], dict[str, Any]], tuple[str, ...]]] = [
    (update, lambda result: {"model": result[1], "opt": result[2]}, ("x", "y")),
    (carry_first, lambda result: {"model": result[0], "opt": result[1]}, ("batch",)),
    (one_state, lambda result: {"state": result[0]}, ("batch",)),
    (only_state, lambda result: {"state": result}, ("batch",)),
    (by_name, lambda result: {"opt": result["opt"], "model": result["model"]}, ("x", "y")),
    (with_key, lambda result: {"model": result[0], "opt": result[1], "key": result[2]}, ("batch",)),
]


@pytest.mark.parametrize(("step", "next_arguments", "names"), STEPS)
@pytest.mark.parametrize(("count", "on_device"), [(3, False), pytest.param(11, True, marks=pytest.mark.slow)])
def test_each_way_to_write_a_step(step: Any, next_arguments: Any, names: Any, count: int, on_device: bool) -> None:
    model, opt = state()
    arguments = {"model": model, "opt": opt, "state": state(), "key": jax.random.key(3)}
    arguments = first = {name: arguments[name] for name in inspect.signature(step).parameters if name in arguments}
    over = jax.tree.map(jnp.asarray, batches(count)) if on_device else batches(count)
    jitted, expected = partax.filter_jit(step), []
    for batch in over:
        expected.append(jitted(**arguments, **dict(zip(names, batch if len(names) == 2 else [batch], strict=True))))
        arguments = next_arguments(expected[-1])
    chunks = partax.scan_steps(jitted, 4)(**first, over=over)
    assert len(chunks) == -(-count // 4)
    for i, result in enumerate(chunks):
        part = expected[4 * i : 4 * i + 4]
        assert jax.tree.structure(result) == jax.tree.structure(part[-1])
        close(next_arguments(result), next_arguments(part[-1]))
        for leaf, *leaves in zip(jax.tree.leaves(result), *map(jax.tree.leaves, part), strict=True):
            if isinstance(leaf, jax.Array) and leaf.ndim > np.ndim(leaves[-1]):
                close(leaf, jnp.stack(leaves))
            elif not isinstance(leaf, jax.Array):
                assert leaf == leaves[-1]


def test_an_iterator_that_raises_loses_nothing() -> None:
    def some(count: int) -> Iterator[Any]:
        yield from batches(count)
        raise OSError("the disk is gone")

    *_, expected = partax.scan_steps(partax.filter_jit(carry_first), 4)(*state(), over=batches(4))
    for count in (0, 3, 4):
        losses: list[float] = []
        chunks = partax.scan_steps(partax.filter_jit(carry_first), 4)(*state(), over=some(count))
        with pytest.raises(OSError, match="the disk is gone"):
            any(losses.extend(values.tolist()) for *_, values in chunks)
        close(jnp.asarray(losses, "f4"), expected[2][:count])


def test_no_batches_give_nothing() -> None:
    assert list(partax.scan_steps(partax.filter_jit(carry_first), 4)(*state(), over=[])) == []
    with pytest.raises(TypeError):
        len(partax.scan_steps(partax.filter_jit(carry_first), 4)(*state(), over=iter([])))


def test_a_chunk_is_taken_while_the_one_before_runs() -> None:
    order: list[str] = []

    def watched() -> Iterator[Any]:
        for i, batch in enumerate(batches(8)):
            order.append(f"batch {i}")
            yield batch

    for _ in partax.scan_steps(partax.filter_jit(carry_first), 4)(*state(), over=watched()):
        order.append("chunk")
    assert order == [*(f"batch {i}" for i in range(8)), "chunk", "chunk"]


@pytest.mark.parametrize("donate", ["none", ("state",)])
def test_donation_goes_on(donate: Any) -> None:
    def step(fixed: Any, state: Any, batch: Any) -> Any:
        return {"w": state["w"] + fixed * batch}, (state["w"] * batch).sum()

    first, fixed = {"w": jnp.zeros(3)}, jnp.ones(3)
    run = partax.scan_steps(partax.filter_jit(step, donate=donate), 4, carry={"state": 0})
    before = first
    for state, _ in run(fixed, first, over=[np.ones(3, "f4")] * 10):
        assert before["w"].is_deleted() == (donate != "none")
        before = state
    assert not fixed.is_deleted() and before["w"].tolist() == [10, 10, 10]


def test_carry_says_what_is_carried() -> None:
    def step(params: Any, teacher: Any, rate: Any, x: Any) -> Any:
        gradient = {"w": params["w"] - teacher["w"]}
        return {"w": params["w"] - rate * gradient["w"]}, gradient, rate * 0.5

    args = {"w": jnp.ones(2)}, {"w": jnp.zeros(2)}, jnp.float32(0.5)
    run = partax.scan_steps(partax.filter_jit(step), 2, carry={"params": 0, "rate": 2})
    (first, gradients, rate), (second, _, last) = run(*args, over=[np.ones(1, "f4")] * 4)
    close((first["w"], gradients["w"].shape, rate), (jnp.full(2, 0.375), (2, 2), jnp.float32(0.125)))
    assert float(last) == 0.03125 and second["w"][0] < first["w"][0]


@pytest.mark.parametrize(
    ("pack", "unpack", "carry"),
    [
        (lambda params, opt: (opt, params), lambda result: result[::-1], {"params": 1, "opt": 0}),
        (State, lambda result: result, {"params": "params", "opt": "opt"}),
        (
            lambda params, opt: (1, {"new": [params, opt]}),
            lambda result: result[1]["new"],
            {"params": (1, "new", 0), "opt": (1, "new", 1)},
        ),
    ],
)
def test_places_say_which_of_two_alike_results_is_carried(pack: Any, unpack: Any, carry: Any) -> None:
    def step(params: Any, opt: Any, x: Any) -> Any:
        return pack({"w": params["w"] + opt["w"] * x}, {"w": opt["w"] * 0.5 + params["w"]})

    jitted, over = partax.filter_jit(step), [np.ones(2, "f4")] * 5
    args = expected = {"w": jnp.zeros(2)}, {"w": jnp.ones(2)}
    for x in over:
        expected = unpack(jitted(*expected, x))
    close(unpack(list(partax.scan_steps(jitted, 2, carry=carry)(*args, over=over))[-1]), expected)


def test_an_array_alone_is_carried_if_it_is_all_there_is() -> None:
    step = partax.filter_jit(lambda weight, x: (weight + x, x.sum()))
    *_, (weight, sums) = partax.scan_steps(step, 2)(jnp.zeros(3), over=[np.ones(3, "f4")] * 4)
    assert weight.tolist() == [4, 4, 4] and sums.tolist() == [3, 3]


def test_nothing_is_kept_of_a_run() -> None:
    run = partax.scan_steps(partax.filter_jit(carry_first), 4)
    begun = state()
    dead = weakref.ref(begun.params.layers[0].weight)
    for model, *_ in run(*begun, over=batches(8)):
        last = weakref.ref(model.layers[0].weight)
    del begun, model, _
    gc.collect()
    assert dead() is None and last() is None


def test_nothing_is_kept_of_a_run_that_is_left() -> None:
    gc.disable()
    try:
        over = (batch for batch in batches(8))
        dead, chunks = weakref.ref(over), partax.scan_steps(partax.filter_jit(carry_first), 2)(*state(), over=over)
        assert len(next(chunks)) == 3
        del over, chunks
        assert dead() is None
    finally:
        gc.enable()
