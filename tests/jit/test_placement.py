"""What a call returns lies where `jax.jit` puts it, also beside arrays that come back unchanged."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh

from compiled_names import compiled_names
from meshes import Explicit, mesh_of, on
from partax import filter_jit


def place_of(x: Any) -> Any:
    """All that `jax` says of where an array lies."""
    spec = [*getattr(x.sharding, "spec", ())]
    while spec and spec[-1] is None:  # it makes no difference
        spec.pop()
    return x.devices(), x.committed, x.sharding.memory_kind, type(x.sharding), spec


def three_calls(jit: Callable[..., Any], function: Any, kept: Any, donated: Any) -> list[Any]:
    """What three calls trace, compile and return, where each takes the arrays that the last one has returned."""
    traces = 0

    def body(kept: Any, donated: Any) -> Any:
        nonlocal traces
        traces += 1
        return function(kept, donated)

    ours = {"donate": ("donated",), "reuse_equal_functions": False}  # each call has a body of its own to count
    call, story = jit(body, **(ours if jit is filter_jit else {"donate_argnames": ("donated",)})), []
    for _ in range(3):
        before = traces
        with compiled_names() as names:
            out = call(kept, donated)
        leaves = jax.tree.leaves_with_path(out)
        programs = [name for name in names if "stage" not in name]  # which puts NumPy arrays on their device, once
        story.append(
            (traces - before, len(programs), [(path, place_of(leaf), np.asarray(leaf)) for path, leaf in leaves])
        )
        kept, donated = ({key: out.get(key, x) for key, x in tree.items()} for tree in (kept, donated))
    return story


def assert_as_jax_jit(function: Any, make: Callable[[], tuple[Any, Any]]) -> None:
    ours, theirs = three_calls(filter_jit, function, *make()), three_calls(jax.jit, function, *make())
    for our, their in zip(ours, theirs, strict=True):
        assert our[:2] == their[:2]
        assert [it[:2] for it in our[2]] == [it[:2] for it in their[2]]
        for (_, _, x), (_, _, y) in zip(our[2], their[2], strict=True):
            np.testing.assert_array_equal(x, y)


ROLES = ("forwarded", "changed", "both", "unused", "donated")


def homes(devices: list[Any]) -> list[list[Any]]:
    """Where arrays may lie that are committed to one set of devices."""
    split, whole = on(mesh_of(devices[:4]), "d"), on(mesh_of(devices[:4]))
    explicit = on(mesh_of(devices[:4], kind=Explicit), "d")
    return [[], [devices[1]], [split, whole], [explicit], [split.with_memory_kind("pinned_host"), split]]


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_split_of_the_arrays(data: st.DataObject) -> None:
    places = [None, "NumPy", *data.draw(st.sampled_from(homes(jax.devices())))]
    arrays = data.draw(st.lists(st.tuples(st.sampled_from(ROLES), st.sampled_from(places)), min_size=1, max_size=4))
    num_new = data.draw(st.integers(0, 2))

    def function(kept: Any, donated: Any) -> Any:
        changed = {key: x * 2 for key, x in donated.items()}
        changed |= {key: x * 2 for key, x in kept.items() if key.startswith("changed")}
        changed |= {f"of {key}": x + 1 for key, x in kept.items() if key.startswith("both")}
        forwarded = {key: x for key, x in kept.items() if key.startswith(("forwarded", "both"))}
        return {**forwarded, **changed, **{f"new {i}": jnp.full((8, 4), i) for i in range(num_new)}}

    def make() -> tuple[Any, Any]:
        trees: Any = {}, {}
        for i, (role, place) in enumerate(arrays):
            x: Any = np.full((8, 4), i, np.float32)
            x = x if place == "NumPy" else jnp.asarray(x) if place is None else jax.device_put(x, place)
            trees[role == "donated"][f"{role} {i}"] = x
        return trees

    assert_as_jax_jit(function, make)


def test_committed_arrays_are_the_same_objects_and_others_follow_the_program(devices: list[Any]) -> None:
    split = on(mesh_of(devices[:4]), "d")
    model = eqx.nn.Linear(4, 8, key=jax.random.key(0))
    placed = jax.device_put(model, on(mesh_of(devices[:4])))
    f = filter_jit(lambda model, x, batch: (model, x, batch.sum()))
    batch = jax.device_put(jnp.ones(8), split)
    x = jnp.ones(3)
    same, moved, _ = f(placed, x, batch)
    assert same is placed and moved.committed and moved.devices() == split.device_set
    own, _, _ = f(model, x, batch)
    assert own.weight.committed and own.weight.devices() == split.device_set
    plain = jnp.ones(8)
    assert f(model, x, plain)[0] is model and f(model, x, plain)[1] is x


def test_settings_that_place_what_is_uncommitted(devices: list[Any], mesh: Mesh) -> None:
    f, by_jax = (jit(lambda x, y: (x, y + 1)) for jit in (filter_jit, jax.jit))
    x = jnp.ones(8)
    for place in (jax.default_device(devices[1]), jax.set_mesh(mesh)):
        with place:
            ours, theirs = f(x, 2.0 * jnp.ones(8)), by_jax(x, 2.0 * jnp.ones(8))
        assert [place_of(it) for it in ours] == [place_of(it) for it in theirs]
    with jax.default_device(devices[1]):
        elsewhere = jnp.ones(8)
    assert [place_of(it) for it in f(elsewhere, x)] == [place_of(it) for it in by_jax(elsewhere, x)]


def test_a_call_that_is_compiled_before_compiles_nothing(devices: list[Any]) -> None:
    f = filter_jit(lambda model: (model, jnp.zeros(3)))
    for place in (devices[1], on(mesh_of(devices[:4]), "d")):
        model = jax.device_put(jnp.ones((8, 4)), place)
        f.precompile((model,))
        assert f.lower(model).compile()(model)[1].devices() == model.devices()
        with compiled_names() as names:
            assert f(model)[1].devices() == f.bind(model)()[1].devices() == model.devices()
        assert names == [] and f.cache_info().misses == 0
