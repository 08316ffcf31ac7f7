"""Guards the promise that filter_shard places the arrays of any tree as the sharding says, in and outside of jit, and
nothing else; and that in_shardings and out_shardings are prefixes of the user's own arguments and result."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import partax.nnx
from conftest import TraceCounter
from meshes import Auto, Explicit, has, mesh_of, on
from partax import filter_jit, filter_shard
from trees import Layer, array, assert_same, make_model


def test_a_single_sharding_places_every_array_and_nothing_else(mesh: Mesh) -> None:
    tree = {"model": make_model(), "x": array(16), "n": 3, "f": jnp.tanh, "none": None, "numpy": np.arange(8.0)}
    placed = filter_shard(tree, on(mesh))
    assert_same(placed, jax.tree.map(lambda leaf: leaf, tree))
    arrays = [(x, it) for x, it in zip(*map(jax.tree.leaves, (placed, filter_shard(placed, on(mesh)))), strict=True)]
    assert all(x is it for x, it in arrays)  # what is placed so is the same object
    arrays = [x for x, _ in arrays if isinstance(x, jax.Array)]
    assert len(arrays) == 6 and all(has(x, on(mesh)) and x.committed for x in arrays)


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
    for sharding in (on(mesh, "d"), mesh.devices.flat[0]):
        x = np.ones(1 << 16, np.float32)
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


@pytest.mark.parametrize("by_spec", [False, True])
def test_one_sharding_is_over_axes_of_one_type(devices: list[Any], by_spec: bool) -> None:
    grid = Mesh(np.array(devices).reshape(4, 2), ("e", "a"), axis_types=(Explicit, Auto))
    explicit, auto, both = (P(*spec) if by_spec else on(grid, *spec) for spec in (("e",), (None, "a"), ("e", "a")))
    with jax.set_mesh(grid):
        out = filter_jit(lambda x: filter_shard(filter_shard({"y": x + 1}, explicit), auto)["y"])(array(8, 8))
        assert_same(out, array(8, 8) + 1)
        assert has(out, on(grid, "e", "a"))
        with pytest.raises(ValueError, match=r"`tree\['y'\]`: found float32\[8,8\], expected .*JAX says"):
            filter_jit(lambda x: filter_shard({"y": x + 1}, both))(array(8, 8))


def test_what_does_not_fit_is_named(mesh: Mesh) -> None:
    layers = {"layers": [Layer(array(8, 8), array(8)), Layer(array(8, 8), array(15))]}
    xy, s = {"x": array(8), "y": [array(8), array(8)]}, on(mesh)
    rows: list[tuple[Any, Any, str]] = [
        (array(15), on(mesh, "d"), r"`: found float32\[15\]"),
        (layers, on(mesh, "d"), r"\['layers'\]\[1\]\.bias`: found float32\[15\], .*'d'(.|\n)*8"),
        (layers, on(mesh, None, "d"), r"\['layers'\]\[0\]\.bias`: found float32\[8\], .*PartitionSpec|P\("),
        (xy, {"x": s, "y": [s]}, r"\['y'\]`: found a `list` with 2 children, expected the structure of sharding"),
        (xy, {"x": jnp.tanh, "y": s}, r"\['x'\]`: found a `\w+` as its sharding, expected"),
        (xy, {"x": ("d",), "y": s}, r"\['x'\]`: found an array"),
    ]
    inside = filter_jit(lambda tree, prefix: filter_shard(tree, prefix))
    for place, wrong in ((filter_shard, rows), (inside, rows[2:])):  # inside, jax pads what does not divide
        for tree, prefix, message in wrong:
            with pytest.raises((TypeError, ValueError), match=f"`tree{message}"):
                place(tree, prefix)


# ---- Shardings as options.


def plus(tree: Any) -> Any:
    return jax.tree.map(lambda x: x + 1, tree)


def test_a_single_sharding_holds_for_every_array(split: NamedSharding, traces: TraceCounter) -> None:
    f = filter_jit(lambda x, n, tree: (traces.seen(x) * n, plus(tree["a"]), tree["name"]), in_shardings=split)
    for _ in range(3):
        x, a, name = f(array(16), 3, {"a": array(8, 2), "name": "s"})
        assert has(x, split) and has(a, split)
        assert_same((x, a, name), (array(16) * 3, array(8, 2) + 1, "s"))
    assert traces.count == 1


def test_a_tuple_goes_by_position_in_the_signature(split: NamedSharding, everywhere: NamedSharding) -> None:
    f = filter_jit(lambda x, y, n=2: (x * n, y * n), in_shardings=(split, everywhere, None))
    for x, y in (f(array(8), array(8)), f(y=array(8), x=array(8)), f(array(8), n=2, y=array(8))):
        assert has(x, split) and has(y, everywhere)
        assert_same((x, y), (array(8) * 2, array(8) * 2))


def test_prefixes_go_into_containers_and_modules(split: NamedSharding, everywhere: NamedSharding) -> None:
    of_model = jax.tree.map(lambda leaf: everywhere if eqx.is_array(leaf) else None, make_model(1))

    @filter_jit(in_shardings=(of_model, {"x": split, "y": everywhere, "n": None}, [everywhere, split]))
    def f(model: Any, batch: Any, rest: Any) -> Any:
        return plus(model.layers[0].weight), batch["x"] + batch["n"], plus(batch["y"]), plus(rest)

    batch = {"x": array(8), "y": array(8), "n": 5}
    weight, x, y, (a, b) = f(make_model(1), batch, [array(8), (array(8), {"k": array(16)})])
    assert has(weight, everywhere) and has(x, split) and has(y, everywhere) and has(a, everywhere)
    assert has(b[0], split) and has(b[1]["k"], split)
    assert_same((x, y), (array(8) + 5, array(8) + 1))


@pytest.mark.parametrize(
    ("option", "make", "told"),
    [
        ("in_shardings", lambda s: (s, {"x": s}), "batch"),
        ("in_shardings", lambda s: ([s, s, s], None), "model"),
        ("in_shardings", lambda s: (s,), "^in_shardings has no entry for the arrays of `batch`;"),
        ("in_shardings", lambda s: (s,) * 3, r"^in_shardings has more entries than .* \(model, batch\)$"),
        ("out_shardings", lambda s: (s, s, s), "the result"),
        ("out_shardings", lambda s: (s, {"x": s, "y": [s]}), "the result"),
    ],
)
def test_a_prefix_that_does_not_match_is_named(split: NamedSharding, option: str, make: Any, told: str) -> None:
    f = filter_jit(lambda model, batch: (model[0], batch), **{option: make(split)})
    for _ in range(2):
        with pytest.raises(ValueError, match=f"(?s)(?=.*{option}).*{told}" if "^" not in told else told):
            f([array(8), array(8)], {"x": array(8), "y": array(8)})


@pytest.mark.parametrize(
    "leaf",
    [array(3), np.ones(3), array(), jax.device_put(array(8), jax.devices()[-1])],
    ids=["indivisible", "indivisible, NumPy", "scalar", "committed elsewhere"],
)
@pytest.mark.parametrize("options", [{}, {"donate": "all"}], ids=str)
def test_an_array_that_does_not_fit_is_named(split: NamedSharding, leaf: Any, options: dict[str, Any]) -> None:
    f = filter_jit(lambda tree, x: (tree, x), in_shardings=split, **options)
    tree = {"n": 1, "good": array(8), "w": array(16)}
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^`tree\['w'\]`: found float\d+\[.*\], expected .*JAX says: ") as info:
            f({**tree, "w": leaf}, array(8))
        assert isinstance(info.value.__cause__, ValueError)
    assert_same(f(tree, array(8))[0]["w"], array(16))


def test_a_prefix_of_the_result(split: NamedSharding, everywhere: NamedSharding) -> None:
    f = filter_jit(
        lambda x: (x + 1, 3, {"y": [x * 2, x * 3], "z": x}), out_shardings=(split, None, {"y": everywhere, "z": split})
    )
    first, n, rest = f(array(8))
    assert has(first, split) and n == 3 and has(rest["z"], split) and all(has(y, everywhere) for y in rest["y"])
    assert_same(first, array(8) + 1)


def test_only_a_result_without_sharding_is_forwarded(split: NamedSharding) -> None:
    f = filter_jit(lambda x, y: (x, y), out_shardings=(split, None))
    for _ in range(2):
        x, y = array(8), array(8, start=1)
        first, second = f(x, y)
        assert first is not x and has(first, split) and len(x.sharding.device_set) == 1
        assert_same((first, second), (array(8), array(8, start=1)))
