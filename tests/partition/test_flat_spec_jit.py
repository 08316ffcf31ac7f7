"""Guards the promise that a FlatSpec and a Static are pytrees without leaves, which jax.jit and filter_jit take and
return, and that a call retraces exactly when their static parts differ."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import TraceCounter
from growth import Witness
from partax import FlatSpec, Static, filter_jit, flat_combine, flat_partition, is_array
from partition_reference import assert_identical
from test_flat_spec import GROUPS, as_aux, as_leaf, as_static, over_wrappers
from trees import Config, array, assert_close, make_model


def jax_jit(f: Callable[..., Any]) -> Any:
    return jax.jit(f)


over_jits = pytest.mark.parametrize("jit", [jax_jit, filter_jit], ids=["jax.jit", "filter_jit"])


# --- values that change


@over_jits
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [1, 2], lambda v: v.append(3)),
        (lambda: {"a": 1}, lambda v: v.update(a=2)),
        (lambda: {1, 2}, lambda v: v.add(3)),
        (lambda: bytearray(b"ab"), lambda v: v.extend(b"c")),
        (lambda: ([1], {"k": [2]}), lambda v: v[1]["k"].append(3)),
        (lambda: Config([1]), lambda v: v.width.append(2)),
    ],
    ids=["list", "dict", "set", "bytearray", "nested", "in a dataclass"],
)
def test_a_static_whose_value_changes_is_never_a_stale_hit(jit: Any, make: Any, change: Any) -> None:
    f = jit(lambda x, s: x + len(repr(s.value)))
    expected = lambda s: 1.0 + len(repr(s.value))
    value = make()
    first = Static(value)
    assert f(1.0, first) == expected(first)
    before = Static(make())
    change(value)
    second = Static(value)
    for s in (first, second, before, Static(make()), Static(value), second, first):
        assert f(1.0, s) == expected(s)
    assert second != before and hash(second) == hash(Static(value)) and before == Static(make())


@over_jits
def test_a_spec_whose_static_leaf_changes_is_never_a_stale_hit(jit: Any) -> None:
    f = jit(lambda arrays, spec: arrays["['x']"] + len(flat_combine(spec, arrays)["leaf"]))
    for make in (lambda: bytearray(b"ab"), lambda: {1, 2}):
        value = make()
        tree = {"x": jnp.ones(()), "leaf": value}
        spec, arrays = flat_partition(tree, is_array, rest="static")
        expected = lambda spec, arrays=arrays: 1 + len(flat_combine(spec, arrays)["leaf"])
        assert f(arrays, spec) == expected(spec) == 3
        value.extend(b"c") if isinstance(value, bytearray) else value.add(3)
        for s in (spec, flat_partition(tree, is_array, rest="static")[0], as_leaf(make()), spec):
            assert f(arrays, s) == expected(s)
        assert flat_partition(tree, is_array, rest="static")[0] != as_leaf(make())


# --- pytrees without leaves


@over_wrappers
def test_no_leaves(wrap: Any) -> None:
    for value in (1, "x", [1, 2], (1, {"a": b"b"}), Config([1])):
        wrapped = wrap(value)
        assert jax.tree.leaves(wrapped) == []
        assert jax.tree.map(lambda x: x + 1, wrapped) is not None
        assert jax.tree.leaves([wrapped, 3]) == [3]
        leaves, treedef = jax.tree.flatten({"a": wrapped, "b": 1})
        again = jax.tree.unflatten(treedef, leaves)
        assert type(again["a"]) is type(wrapped)


@over_wrappers
def test_what_jax_rebuilds_is_equal(wrap: Any) -> None:
    for make in (makes[0] for makes in GROUPS.values()):
        wrapped = wrap(make())
        for again in (jax.tree.map(lambda x: x, wrapped), *jax.tree.map(lambda x: x, (wrapped, [wrapped]))[:1]):
            assert again == wrapped and hash(again) == hash(wrapped)
    spec, arrays = flat_partition(make_model(), is_array, rest="static")
    assert_identical(flat_combine(jax.tree.map(lambda x: x, spec), arrays), flat_combine(spec, arrays))


@over_jits
@over_wrappers
def test_equal_ones_share_a_trace_and_different_ones_do_not(jit: Any, wrap: Any, traces: TraceCounter) -> None:
    @jit
    def f(x: jax.Array, wrapped: Any) -> Any:
        traces.tick()
        return x + 1, wrapped

    def check(make: Callable[[], Any]) -> None:
        out, same = f(jnp.float32(1), wrap(make()))
        assert out == 2
        assert type(same) is type(wrap(make()))
        assert same == wrap(make()) and hash(same) == hash(wrap(make()))

    for count, (name, makes) in enumerate(GROUPS.items(), start=1):
        for make in makes * 2:
            check(make)
            assert traces.count == count, name
    for makes in GROUPS.values():
        for make in makes:
            check(make)
    assert traces.count == len(GROUPS)


@over_jits
def test_arrays_and_spec_through_a_jitted_step(jit: Any, traces: TraceCounter) -> None:
    @jit
    def step(arrays: Any, spec: FlatSpec) -> Any:
        traces.tick()
        model = flat_combine(spec, arrays)
        assert model.layers[0].rate == 0.5
        return {key: value + 1 for key, value in arrays.items()}, spec, model(arrays["layers/0/bias"])

    spec, arrays = flat_partition(make_model(), is_array, separator="/", rest="static")
    for n in range(3):
        expected = make_model(start=float(n))(array(3, start=float(n))) if n == 0 else None
        arrays, new_spec, out = step(arrays, flat_partition(make_model(), is_array, separator="/", rest="static")[0])
        assert new_spec == spec
        if expected is not None:
            assert_close(out, expected)
    assert traces.count == 1
    model = flat_combine(new_spec, arrays)
    np.testing.assert_array_equal(model.layers[1].bias, array(3) + 3)
    assert model.layers[0].rate == 0.5 and model.name == "model"


@over_jits
def test_a_hundred_thousand_static_leaves_share_a_trace(jit: Any, traces: TraceCounter) -> None:
    @jit
    def f(arrays: Any, spec: FlatSpec) -> Any:
        traces.tick()
        return arrays["[0]"] + len(flat_combine(spec, arrays))

    for last in (0, 0, 1):
        spec, arrays = flat_partition([array(1), *range(100_000), last], is_array, rest="static")
        assert f(arrays, spec)[0] == 100_002
    assert traces.count == 2


def test_vmap_grad_scan_and_checkpoint_take_them() -> None:
    spec, arrays = flat_partition(make_model(), is_array, rest="static")

    def loss(arrays: Any, spec: FlatSpec, static: Static, x: jax.Array) -> jax.Array:
        return flat_combine(spec, arrays)(x).sum() * static.value

    x = array(4, 3)
    out = jax.vmap(loss, in_axes=(None, None, None, 0))(arrays, spec, Static(2), x)
    assert_close(out, jnp.stack([make_model()(row).sum() * 2 for row in x]))
    grads = jax.grad(loss)(arrays, spec, Static(2), x[0])
    assert sorted(grads) == sorted(arrays)
    (_, last), _ = jax.lax.scan(lambda c, row: ((c[0], c[1]), row.sum()), (x[0], spec), x)
    assert last == spec
    jax.checkpoint(loss)(arrays, spec, Static(2), x[0])
    assert jax.eval_shape(lambda s: s, Static("x")) == Static("x")


def test_statics_in_a_model_are_no_leaves() -> None:
    tree = [array(2), Static("relu"), {"a": Static([1, 2])}]
    assert [leaf is tree[0] for leaf in jax.tree.leaves(tree)] == [True]
    out = jax.jit(lambda t: t)(tree)
    assert out[1] == Static("relu") and out[2]["a"].value == [1, 2]
    spec, all_leaves = flat_partition(tree)
    assert list(all_leaves) == ["[0]"]
    assert flat_combine(spec, all_leaves)[2]["a"] == Static([1, 2])
    assert flat_partition([array(2), Static("tanh"), {"a": Static([1, 2])}])[0] != spec


@over_jits
def test_a_jitted_function_frees_specs_with_its_cache(jit: Any, collect: Any) -> None:
    f = jit(lambda x, wrapped: x)
    alive = []
    for wrap in (as_static, as_leaf, as_aux):
        witness = Witness()
        f(1.0, wrap(witness))
        alive.append(weakref.ref(witness))
    del witness
    f.clear_cache()
    del f
    if jit is jax_jit:
        jax.clear_caches()  # jax keeps the structures of arguments longer than the functions
    collect()
    assert [ref() for ref in alive] == [None] * 3
