"""filter_shard places the arrays of any tree as the sharding says, inside and outside of jit, and nothing else."""

from __future__ import annotations

import itertools
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


@pytest.fixture
def grid(devices: list[Any]) -> Mesh:
    """Two axes for the data, of either type."""
    return Mesh(np.array(devices).reshape(4, 2), ("e", "a"), axis_types=(Explicit, Auto))


def specs(tree: Any) -> list[Any]:
    return [leaf.sharding.spec for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_each_array_gets_its_own_sharding_where_keys_have_no_order(mesh: Mesh, order: tuple[int, ...]) -> None:
    nan = float("nan")
    values = {2.0: array(8), nan: 7, 1.0: array(8), 0.0: array(8)}
    wanted = {2.0: on(mesh, "d"), nan: None, 1.0: on(mesh), 0.0: SingleDeviceSharding(mesh.devices.flat[3])}
    keys = [list(values)[i] for i in order]
    placed = filter_shard({key: values[key] for key in keys}, {key: wanted[key] for key in keys})
    assert placed[nan] == 7
    assert all(has(placed[key], wanted[key]) for key in (2.0, 1.0, 0.0))


def test_a_single_sharding_places_every_array_and_nothing_else(mesh: Mesh) -> None:
    tree = {"model": make_model(), "x": array(16), "n": 3, "f": jnp.tanh, "none": None, "numpy": np.arange(8.0)}
    placed = filter_shard(tree, on(mesh))
    leaves, wanted = jax.tree.leaves(placed), jax.tree.leaves(tree)
    assert type(placed["model"]) is type(tree["model"])
    assert jax.tree.structure(placed) == jax.tree.structure(tree)
    for leaf, original in zip(leaves, wanted, strict=True):
        if eqx.is_array(original):
            assert isinstance(leaf, jax.Array) and has(leaf, on(mesh)) and leaf.committed
            np.testing.assert_array_equal(leaf, original)
        else:
            assert leaf is original


def test_a_device_is_a_sharding_too(devices: list[Any]) -> None:
    placed = filter_shard({"x": array(4), "numpy": np.ones(2), "s": "s"}, devices[5])
    assert placed["x"].devices() == placed["numpy"].devices() == {devices[5]} and placed["s"] == "s"
    placed = filter_shard([array(4), array(4)], [devices[1], None])
    assert placed[0].devices() == {devices[1]} and placed[1].devices() == {devices[0]}


def test_a_prefix_chooses_by_subtree_and_none_leaves_arrays_alone(mesh: Mesh) -> None:
    split, everywhere = on(mesh, "d"), on(mesh)
    x, layer = array(8), Layer(array(8, 8), array(8))
    tree = {"a": [x, (array(16), 2)], "b": layer, "c": x, "n": 1}
    placed = filter_shard(tree, {"a": split, "b": Layer(split, everywhere), "c": None, "n": None})
    assert has(placed["a"][0], split) and has(placed["a"][1][0], split) and placed["a"][1][1] == 2
    assert has(placed["b"].weight, split) and has(placed["b"].bias, everywhere)
    assert placed["c"] is x and placed["n"] == 1
    assert filter_shard(tree, None)["b"].weight is layer.weight


def test_an_array_that_is_placed_so_is_the_same_object(mesh: Mesh) -> None:
    tree = filter_shard(make_model(), on(mesh))
    again = filter_shard(tree, on(mesh))
    assert all(a is b for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(tree), strict=True))


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
    model = make_model()
    like = filter_shard(eqx.filter_eval_shape(lambda: model), on(mesh))
    assert all(leaf.sharding == on(mesh) for leaf in jax.tree.leaves(like) if hasattr(leaf, "sharding"))
    partax.save(tmp_path / "model", model)
    loaded = partax.load(tmp_path / "model", like=like)
    assert set(specs(loaded)) == {P()} and len(specs(loaded)) == len(specs(filter_shard(model, on(mesh))))
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
        (("e", "a"), ("e", "a")),
        ((("e", "a"), None), (("e", "a"), None)),
        (("e",), ("e", None)),
        ((None, "a"), (None, "a")),
        ((), (None, None)),
        (("a", P.UNCONSTRAINED), ("a", None)),
    ],
)
@pytest.mark.parametrize("by_spec", [False, True])
def test_axes_of_either_type(grid: Mesh, spec: Any, want: Any, by_spec: bool) -> None:
    if P.UNCONSTRAINED not in spec:
        assert has(filter_shard(array(8, 8), on(grid, *spec)), on(grid, *want))
    sharding = P(*spec) if by_spec else on(grid, *spec)
    with jax.set_mesh(grid):
        for x in (array(8, 8), jax.device_put(array(8, 8), on(grid, "e", "a"))):
            out = filter_jit(lambda x: filter_shard({"y": x + 1}, sharding)["y"])(x)
            assert_same(out, array(8, 8) + 1)
            assert P.UNCONSTRAINED in spec or has(out, on(grid, *want))


def test_an_axis_that_does_not_divide_names_the_path(mesh: Mesh, devices: list[Any]) -> None:
    tree = {"layers": [Layer(array(8, 8), array(8)), Layer(array(8, 8), array(15))]}
    with pytest.raises(ValueError, match=r"`tree\['layers'\]\[1\]\.bias`: found float32\[15\], .*'d'(.|\n)*8"):
        filter_shard(tree, on(mesh, "d"))
    with pytest.raises(ValueError, match=r"`tree\['layers'\]\[0\]\.bias`: found float32\[8\], .*PartitionSpec|P\("):
        filter_shard(tree, on(mesh, None, "d"))
    with pytest.raises(ValueError, match=r"`tree`: found float32\[15\]"):
        filter_shard(array(15), on(mesh, "d"))
    inside = filter_jit(lambda x, sharding: filter_shard({"a": [x, x[:, 0]]}, sharding))
    with pytest.raises(ValueError, match=r"`tree\['a'\]\[1\]`: found float32\[8\]"):
        inside(array(8, 8), on(mesh, None, "d"))
    with pytest.raises(ValueError, match=r"`tree\['a'\]\[0\]`: found float32\[15,15\]"):
        inside(array(15, 15), on(mesh_of(devices, kind=Explicit), "d"))


def test_a_prefix_of_another_structure(mesh: Mesh) -> None:
    s = on(mesh)
    for prefix, told in (
        ({"x": s}, r"`: found a `dict` with the keys \['x', 'y'\]"),
        ([s, s], "`: found a `dict` with "),
        ({"x": s, "y": [s]}, r"\['y'\]`: found a `list` with 2 children"),
        ({"x": [s], "y": s}, r"\['x'\]`: found an array"),
    ):
        with pytest.raises(ValueError, match=f"`tree{told}.*, expected the structure of sharding"):
            filter_shard({"x": array(8), "y": [array(8), array(8)]}, prefix)


@pytest.mark.parametrize("wrong", ["d", 0, jnp.tanh, ("d",)])
def test_what_is_no_sharding(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"`tree\['x'\]`: found an? (`\w+|array)"):
        filter_shard({"x": array(8)}, {"x": wrong})
    if not isinstance(wrong, tuple):
        with pytest.raises(TypeError, match=r"`tree\['x'\]`: found a `\w+` as its sharding, expected"):
            filter_shard({"x": array(8)}, wrong)


def test_an_array_that_jax_cannot_hold(mesh: Mesh) -> None:
    with pytest.raises(TypeError, match=r"`tree\[1\]`: found object\[1\]"):
        filter_shard([array(8), np.array([object()])], mesh.devices.flat[0])
