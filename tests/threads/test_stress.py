"""Guards threads that run at the same moment: whatever they share, no result is wrong and nothing crashes.

Half a second each; `PARTAX_STRESS=60` is the long form, in seconds, for a Python without its GIL.
"""

import gc
import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import partax
from at_once import all_right, assert_equal, at_once, switching
from partax import filter_jit
from stored import written

SECONDS = float(os.environ.get("PARTAX_STRESS", "0.3"))

Work = Callable[[random.Random], None]


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    with switching(1e-5, SECONDS + 180):
        yield


def stress(*works: Work) -> None:
    """Has each thread do one after the other of these, over and over. Raises what one raised."""
    end, failed = time.monotonic() + SECONDS, threading.Event()

    def run(thread: int) -> None:
        rng = random.Random(thread)
        try:
            while not failed.is_set():
                for work in works:
                    work(rng)
                if time.monotonic() > end:
                    return
        except BaseException:
            failed.set()
            raise

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* was re-created")  # as the threads do on purpose
        all_right(at_once(run))


def numbers(rng: random.Random, size: int = 2) -> np.ndarray:
    return np.full(size, rng.randrange(1000), np.float32)


def test_one_wrapper_with_one_key_and_with_many() -> None:
    f = filter_jit(lambda tree, x: {"sum": tree["w"] + tree["rest"][1] * x, "name": tree["name"], "w": tree["w"]})
    g = filter_jit(lambda x, mode: (x * len(mode[0]), mode), cache_size=6)
    modes = [("a" * i, (i, None)) for i in range(9)]

    def work(rng: random.Random) -> None:
        w, x, mode = numbers(rng), numbers(rng), rng.choice(modes)
        array = jnp.asarray(w)
        out = f({"w": array, "rest": ["s", x], "name": "m"}, jnp.asarray(x))
        assert_equal(out["sum"], w + x * x)
        assert out["name"] == "m" and out["w"] is array
        product, static = g(x, mode)
        assert_equal(product, x * len(mode[0]))
        assert static == mode
        if rng.random() < 0.02:
            g.clear_cache()

    stress(work)
    assert f.cache_info().traces == 1


class Slots:
    __slots__ = ("array", "name")

    def __init__(self, array: Any, name: str) -> None:
        self.array, self.name = array, name


jax.tree_util.register_dataclass(Slots, data_fields=["array"], meta_fields=["name"])


class Free(eqx.Module):
    array: Any
    inner: Any


def test_a_tree_that_changes_during_a_call() -> None:
    """Of either state, or refused; nothing is corrupted."""
    f = filter_jit(lambda tree: [leaf + 1 for leaf in jax.tree.leaves(partax.filter(tree, partax.is_array))])
    module, slots = Free(jnp.zeros(2), {"k": jnp.zeros(2)}), Slots(jnp.zeros(2), "a")
    tree: dict[str, Any] = {"list": [jnp.zeros(2)] * 3, "module": module, "slots": slots, "d": {}, "n": 0}
    values = [jnp.full(2, i, np.float32) for i in range(5)]

    def reads(rng: random.Random) -> None:
        try:
            out = f(tree)
        except (RuntimeError, ValueError) as error:
            assert "chang" in str(error), error
        else:
            assert all(1 <= float(leaf[0]) <= 5 for leaf in out)

    def writes(rng: random.Random) -> None:
        value = rng.choice(values)
        tree["list"][rng.randrange(len(tree["list"]) or 1) : 1] = [value]
        del tree["list"][4:]
        object.__setattr__(module, "array", value)
        module.inner["k"] = slots.array = value
        slots.name = rng.choice("ab")
        tree["d"][rng.randrange(3)] = value
        if rng.random() < 0.1:
            tree["d"] = {}

    stress(reads, writes, reads)


def test_functions_and_classes_that_die() -> None:
    def add(x: jax.Array, n: int = 1) -> jax.Array:
        return x + n

    def work(rng: random.Random) -> None:
        class Own(eqx.Module):
            array: Any
            n: int

        x, n = numbers(rng), rng.randrange(3)
        own = Own(jnp.asarray(x), n)
        assert_equal(filter_jit(lambda own: own.array * own.n)(own), x * n)
        assert_equal(filter_jit(add)(x), x + 1)
        assert_equal(filter_jit(lambda x: add(x, n))(x), x + n)
        assert jax.tree.structure(partax.partition(own, partax.is_array)[0]).num_leaves == 1
        if rng.random() < 0.05:
            gc.collect()  # while others' wrappers are being destroyed

    stress(work)


def test_partition_and_combine_of_shared_trees() -> None:
    model = {"a": jnp.ones(2), "rest": [eqx.nn.Linear(2, 2, key=jax.random.key(0)), "s", (jnp.zeros(3), 1.5)]}
    leaves = [leaf for leaf in jax.tree.leaves(model) if eqx.is_array(leaf)]

    def work(rng: random.Random) -> None:
        arrays, rest = partax.partition(model, partax.is_array)
        assert all(a is b for a, b in zip(jax.tree.leaves(arrays), leaves, strict=True))
        spec, flat = partax.flat_partition(model, partax.is_array, rest="static")
        assert hash(spec) == hash(partax.flat_partition(model, partax.is_array, rest="static")[0])
        for whole in (
            partax.combine(arrays, rest),
            partax.flat_combine(spec, flat),
            partax.tree.at(lambda model: model["rest"][2][1], model, 1.5),
        ):
            assert whole["a"] is model["a"] and whole["rest"][1:] == ["s", (model["rest"][2][0], 1.5)]

    stress(work)


def test_explain_and_report_are_on() -> None:
    f, whole = filter_jit(lambda x, n: x * len(n)), list[partax.reports.Report]()

    def work(rng: random.Random) -> None:
        x, n = numbers(rng, rng.randrange(1, 4)), "n" * rng.randrange(4)
        assert_equal(f(x, n), x * len(n))
        if rng.random() < 0.1:
            str(f.report()), f.cache_info()
        if rng.random() < 0.05 and not whole:  # of all functions of all tests, which takes a second
            whole.append(partax.report())

    with partax.explain():
        stress(work)


def test_bound_programs() -> None:
    f = filter_jit(lambda model, x, n: (model["w"] * x + model["b"] * len(n), n))
    w, b = jnp.full(2, 3.0), jnp.full(2, 0.5)
    shared = f.bind({"w": w, "b": b, "s": "t"})

    def work(rng: random.Random) -> None:
        x, n, own = numbers(rng), "n" * rng.randrange(3), numbers(rng)
        assert_equal(shared(jnp.asarray(x), n)[0], 3 * x + np.float32(0.5) * len(n))
        bound = shared.rebind(model={"w": jnp.asarray(own), "b": b, "s": "t"})
        assert_equal(bound(jnp.asarray(x), n)[0], own * x + np.float32(0.5) * len(n))

    stress(work)


def test_the_store(tmp_path: Path) -> None:
    def work(rng: random.Random) -> None:
        size, x, n = rng.randrange(1, 4), numbers(rng), "n" * rng.randrange(2)
        f = filter_jit(lambda x, n: jnp.tile(x, size) + len(n))
        assert_equal(f(jnp.asarray(x), n), np.tile(x, size) + len(n))
        f.clear_cache()

    with partax.store(tmp_path):
        stress(work)
        filter_jit(lambda x: x - 1)(jnp.ones(2))  # one that is not cleared
        written()
    assert list(tmp_path.rglob("*"))


def test_nnx_on_own_and_on_shared_modules() -> None:
    nnx = pytest.importorskip("flax.nnx")
    import partax.nnx

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.weight = nnx.Param(jnp.ones(2))
            self.count = nnx.Variable(jnp.zeros(()))

    class OwnModel(threading.local):
        def __init__(self) -> None:
            self.model, self.count = Model(), 0

    @partax.nnx.jit
    def step(model: Any, x: jax.Array) -> jax.Array:
        model.count[...] += 1
        return model.weight[...] * x

    forward = partax.nnx.jit(lambda model, x: model.weight[...] * x)
    own, shared, changed = OwnModel(), Model(), Model()

    def work(rng: random.Random) -> None:
        x = numbers(rng)
        own.count += 1
        for result in (step(own.model, jnp.asarray(x)), forward(shared, jnp.asarray(x)), step(changed, jnp.asarray(x))):
            assert_equal(result, x)
        assert_equal(own.model.count[...], own.count)
        assert float(changed.count[...]) >= 1  # one thread's count may be lost, as documented

    stress(work)
