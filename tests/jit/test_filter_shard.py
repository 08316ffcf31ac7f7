"""filter_shard places the arrays of any tree as the sharding says, inside and outside of jit, and nothing else."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import partax
from conftest import TraceCounter
from meshes import Auto, Explicit, has, mesh_of, on
from partax import filter_jit, filter_shard
from trees import Layer, array, assert_same, make_model


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (1, 3, 2, 0)])
def test_each_array_gets_its_own_sharding_where_keys_have_no_order(mesh: Mesh, order: tuple[int, ...]) -> None:
    nan = float("nan")
    wanted = {2.0: on(mesh, "d"), nan: None, 1.0: on(mesh), 0.0: SingleDeviceSharding(mesh.devices.flat[3])}
    keys = [list(wanted)[i] for i in order]
    placed = filter_shard({key: 7 if key is nan else array(8) for key in keys}, {key: wanted[key] for key in keys})
    assert placed[nan] == 7
    assert all(has(placed[key], wanted[key]) for key in (2.0, 1.0, 0.0))


def test_a_single_sharding_places_every_array_and_nothing_else(mesh: Mesh) -> None:
    tree = {"model": make_model(), "x": array(16), "n": 3, "f": jnp.tanh, "none": None, "numpy": np.arange(8.0)}
    placed = filter_shard(tree, on(mesh))
    assert_same(placed, jax.tree.map(lambda leaf: leaf, tree))
    arrays = [(x, it) for x, it in zip(*map(jax.tree.leaves, (placed, filter_shard(placed, on(mesh)))), strict=True)]
    assert all(x is it for x, it in arrays)  # what is placed so is the same object
    arrays = [x for x, _ in arrays if isinstance(x, jax.Array)]
    assert len(arrays) == 6 and all(has(x, on(mesh)) and x.committed for x in arrays)


def test_a_device_is_a_sharding_too(devices: list[Any]) -> None:
    placed = filter_shard({"x": array(4), "numpy": np.ones(2), "s": "s"}, devices[5])
    assert placed["x"].devices() == placed["numpy"].devices() == {devices[5]} and placed["s"] == "s"


def test_a_prefix_chooses_by_subtree_and_none_leaves_arrays_alone(mesh: Mesh) -> None:
    split, everywhere = on(mesh, "d"), on(mesh)
    x, layer = array(8), Layer(array(8, 8), array(8))
    tree = {"a": [x, (array(16), 2)], "b": layer, "c": x, "n": 1}
    placed = filter_shard(tree, {"a": split, "b": Layer(split, everywhere), "c": None, "n": None})
    assert has(placed["a"][0], split) and has(placed["a"][1][0], split) and placed["a"][1][1] == 2
    assert has(placed["b"].weight, split) and has(placed["b"].bias, everywhere)
    assert placed["c"] is x and placed["n"] == 1
    assert filter_shard(tree, None)["b"].weight is layer.weight


def test_numpy_arrays_are_copied(mesh: Mesh) -> None:
    x = np.ones(1 << 16, np.float32)
    for sharding in (on(mesh, "d"), on(mesh), mesh.devices.flat[0]):
        x[:] = 1
        placed = filter_shard(x, sharding)
        x[:] = 2
        assert float(placed.max()) == 1


def test_partition_specs_are_of_the_mesh_in_context(mesh: Mesh, devices: list[Any]) -> None:
    explicit = mesh_of(devices, kind=Explicit)
    for one in (mesh, explicit):
        with jax.set_mesh(one):
            placed = filter_shard({"x": array(16), "n": 2}, P("d"))
            inside = filter_jit(lambda tree: filter_shard(tree, {"x": P("d"), "n": None}))({"x": array(16), "n": 2})
        assert placed["x"].sharding == inside["x"].sharding == on(one, "d") and inside["n"] == 2
    with pytest.raises(ValueError, match=r"`tree\['x'\]`: found float32\[16\], expected .*jax.set_mesh"):
        filter_shard({"x": array(16)}, P("d"))


def test_shapes_without_values_get_the_sharding(mesh: Mesh, tmp_path: Any) -> None:
    pytest.importorskip("safetensors")
    like = filter_shard(eqx.filter_eval_shape(make_model), on(mesh))
    partax.save(tmp_path / "model", make_model())
    loaded = partax.load(tmp_path / "model", like=like)
    for tree in (like, loaded):
        assert [it.sharding for it in jax.tree.leaves(tree) if hasattr(it, "sharding")] == [on(mesh)] * 4
    lowered = filter_jit(lambda x: x + 1).lower(filter_shard(jax.ShapeDtypeStruct((16,), jnp.float32), on(mesh, "d")))
    assert lowered.compile().input_shardings["x"] == on(mesh, "d")


def test_inside_jit_it_constrains_and_the_rest_stays_static(mesh: Mesh, traces: TraceCounter) -> None:
    @filter_jit
    def f(tree: Any) -> Any:
        traces.tick()
        tree = filter_shard({**tree, "y": tree["x"] + 1, "const": np.arange(8.0)}, on(mesh, "d"))
        assert type(tree["n"]) is int
        return tree

    for _ in range(3):
        out = f({"x": array(16), "n": 2})
        assert all(has(out[name], on(mesh, "d")) for name in ("x", "y", "const")) and out["n"] == 2
        assert_same(out["y"], array(16) + 1)
    assert traces.count == 1


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ((("e", "a"), None), (("e", "a"), None)),
        (("e",), ("e", None)),
        ((None, "a"), (None, "a")),
        (("a", P.UNCONSTRAINED), ("a", None)),
    ],
)
@pytest.mark.parametrize("by_spec", [False, True])
def test_axes_of_either_type(devices: list[Any], spec: Any, want: Any, by_spec: bool) -> None:
    grid = Mesh(np.array(devices).reshape(4, 2), ("e", "a"), axis_types=(Explicit, Auto))
    if P.UNCONSTRAINED not in spec:
        assert has(filter_shard(array(8, 8), on(grid, *spec)), on(grid, *want))
    sharding = P(*spec) if by_spec else on(grid, *spec)
    with jax.set_mesh(grid):
        for x in (array(8, 8), jax.device_put(array(8, 8), on(grid, "e", "a"))):
            out = filter_jit(lambda x: filter_shard({"y": x + 1}, sharding)["y"])(x)
            assert_same(out, array(8, 8) + 1)
            assert P.UNCONSTRAINED in spec or has(out, on(grid, *want))


def test_what_does_not_fit_is_named(mesh: Mesh, devices: list[Any]) -> None:
    layers = {"layers": [Layer(array(8, 8), array(8)), Layer(array(8, 8), array(15))]}
    xy, s = {"x": array(8), "y": [array(8), array(8)]}, on(mesh)
    structure = ".*, expected the structure of sharding"
    rows: list[tuple[Any, Any, str]] = [
        (array(15), on(mesh, "d"), r"`: found float32\[15\]"),
        (layers, on(mesh, "d"), r"\['layers'\]\[1\]\.bias`: found float32\[15\], .*'d'(.|\n)*8"),
        (layers, on(mesh_of(devices, kind=Explicit), "d"), r"\['layers'\]\[1\]\.bias`: found float32\[15\]"),
        (layers, on(mesh, None, "d"), r"\['layers'\]\[0\]\.bias`: found float32\[8\], .*PartitionSpec|P\("),
        (xy, {"x": s}, rf"`: found a `dict` with the keys \['x', 'y'\]{structure}"),
        (xy, [s, s], f"`: found a `dict` with {structure}"),
        (xy, {"x": s, "y": [s]}, rf"\['y'\]`: found a `list` with 2 children{structure}"),
        (xy, {"x": [s], "y": s}, rf"\['x'\]`: found an array{structure}"),
        (xy, {"x": "d", "y": s}, r"\['x'\]`: found a `str` as its sharding, expected"),
        (xy, {"x": jnp.tanh, "y": s}, r"\['x'\]`: found a `\w+` as its sharding, expected"),
        (xy, {"x": ("d",), "y": s}, r"\['x'\]`: found an array"),
    ]
    inside = filter_jit(lambda tree, prefix: filter_shard(tree, prefix))
    for place, wrong in ((filter_shard, rows), (inside, rows[2:])):  # where jax itself fills up what does not divide
        for tree, prefix, told in wrong:
            with pytest.raises((TypeError, ValueError), match=f"`tree{told}"):
                place(tree, prefix)


def test_an_array_that_jax_cannot_hold(mesh: Mesh) -> None:
    with pytest.raises(TypeError, match=r"`tree\[1\]`: found object\[1\]"):
        filter_shard([array(8), np.array([object()])], mesh.devices.flat[0])
