"""Guards the promise that save and load keep every array bit by bit under its path, in the kind and the place that the
tree to load into says, and that what does not fit, or cannot be stored, is an error that says what and where."""

import errno
import os
import stat
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from odd_values import gone
from partax import flat_partition, is_array, load, save
from trees import Bag, Cell, Pair, array, bits, dtype_of, make_model

STORED = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64 "
STORED += "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
WIDE = ("uint64", "int64", "float64")


def patterns(name: str) -> np.ndarray[Any, Any]:
    """An array of shape (2, 128) with every byte in every place: all NaNs, both zeros, subnormals."""
    if name == "bool":
        return np.arange(256).reshape(2, 128) % 3 == 0
    size = dtype_of(name).itemsize
    places = [np.random.default_rng(place).permutation(256).astype(np.uint8) for place in range(size)]
    return np.stack(places, axis=-1).reshape(-1).view(dtype_of(name)).reshape(2, 128)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("name", STORED.split())
def test_every_bit_pattern_comes_back(name: str, path: Path) -> None:
    value = patterns(name)
    save(path, {"w": value})
    back = load(path, {"w": np.zeros_like(value)})["w"]
    assert type(back) is np.ndarray and bits(back) == bits(value)
    back = load(path)["w"]
    assert isinstance(back, np.ndarray if name in WIDE else jax.Array) and bits(back) == bits(value)
    with jax.enable_x64(True):
        on_device = jax.device_put(value)
    save(path, {"w": on_device})
    for like in (on_device, jax.ShapeDtypeStruct(value.shape, value.dtype)):
        back = load(path, {"w": like})["w"]
        assert isinstance(back, jax.Array) and bits(back) == bits(value)


def test_layouts_of_numpy_arrays(path: Path) -> None:
    values = {
        "big-endian": patterns("float32").astype(">f4"),
        "Fortran": np.asfortranarray(patterns("int16")),
        "backwards": patterns("bfloat16")[::-1, ::-3],
        "no dimension": np.array(-0.0),
        "empty": np.zeros((3, 0, 5), jnp.bfloat16),
        "scalar": np.float32(1),
    }
    save(path, values)
    for name, back in load(path, values).items():
        assert type(back) is type(values[name]) and back.dtype == values[name].dtype, name
        assert bits(back) == bits(values[name]), name


@pytest.mark.parametrize("name", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_prng_keys(name: str, path: Path) -> None:
    keys = {"one": jax.random.key(3, impl=name), "many": jax.random.split(jax.random.key(4, impl=name), (2, 3))}
    save(path, keys)
    for back in (load(path), load(path, keys), load(path, jax.eval_shape(lambda: keys))):
        for key, value in keys.items():
            assert back[key].dtype == value.dtype and bits(back[key]) == bits(value)


@pytest.mark.parametrize("separator", [None, "/"])
def test_the_keys_are_those_of_flat_partition(separator: str | None, path: Path) -> None:
    tree: dict[str, Any] = {"m": make_model(), "p": Pair(np.float32(1), [Cell(array(3), None), "static"])}
    tree |= {"b": Bag(array(2)), "a": {"b": array(1)}, "a/b": array(1, start=7)}  # two paths that `/` writes alike
    save(path, tree, separator=separator)
    _, taken, _ = flat_partition(tree, is_array, separator=separator)
    assert set(load(path)) == set(taken)
    like = jax.tree.map(lambda leaf: leaf * 0 if is_array(leaf) else object(), tree)
    back = load(path, like, separator=separator)
    assert jax.tree.structure(back) == jax.tree.structure(like)
    for found, own, saved in zip(*map(jax.tree.leaves, (back, like, tree)), strict=True):
        assert bits(found) == bits(saved) if is_array(saved) else found is own


def test_arrays_come_onto_the_sharding_of_like(path: Path, devices: list[jax.Device]) -> None:
    mesh = Mesh(np.array(devices), ("x",))
    split = NamedSharding(mesh, PartitionSpec("x"))
    value = {
        "split": jax.device_put(array(16, 3), split),
        "keys": jax.device_put(jax.random.split(jax.random.key(0), 8), split),
        "free": array(5),
        "gone": array(5),
    }
    save(path, value)
    shardings = {key: leaf.sharding if leaf.committed else None for key, leaf in value.items()}
    structs = {key: jax.ShapeDtypeStruct(it.shape, it.dtype, sharding=shardings[key]) for key, it in value.items()}
    for like in ({**value, "gone": gone(5)}, structs):
        back = load(path, like)
        for key, leaf in value.items():
            assert back[key].sharding == leaf.sharding and back[key].committed == leaf.committed, key
            assert bits(back[key]) == bits(leaf)


def test_all_that_does_not_fit_is_in_one_error(path: Path) -> None:
    saved = {"a": array(3), "b": array(2, 2), "weigth\r": array(4), "same": array(1), "k": jax.random.key(0)}
    like = {"a": array(4), "b": jnp.zeros((2, 2), jnp.bfloat16), "weight": array(4), "same": array(1), "k": array(2)}
    save(path, {"model": [saved]}, separator="/")
    with pytest.raises(ValueError) as raised:
        load(path, {"model": [like]}, separator="/")
    assert str(raised.value).splitlines() == [
        f"`{path}` does not fit `like`:",
        "  `model/0/a`: found float32[3], expected float32[4]",
        "  `model/0/b`: found float32[2,2], expected bfloat16[2,2]",
        "  `model/0/k`: found key<fry>[], expected float32[2]",
        "  `model/0/weight`: found nothing, expected float32[4]",
        "  `model/0/weigth\\r`: found float32[4], expected nothing",
    ]


class NoPytree:
    def __init__(self) -> None:
        self.layers = [{"weight": array(2)}]


CANNOT: list[tuple[Any, str]] = [
    (jax.ShapeDtypeStruct((), bool), r"found ShapeDtypeStruct\(.*save the arrays that it has or describes"),
    (NoPytree(), "found <.*NoPytree.*save the arrays that it has"),
    (np.ma.array([1.0], mask=[True]), r"found float64\[1\].*save the arrays that it has"),
    (gone(2), r"found float32\[2\].*save it before it is deleted or donated"),
    (np.array([object()]), r"found object\[1\].*cast it to one of these: bool "),
    *((np.zeros(2, dtype), "found .*cast it to one of these") for dtype in ("U3", "M8[s]", "i4,f4", np.longdouble)),
    *((np.zeros(2, dtype_of(name)), f"found {name}.*cast it") for name in ("int4", "float4_e2m1fn", "complex128")),
]


@pytest.mark.parametrize(("value", "text"), CANNOT, ids=range(len(CANNOT)))
def test_what_cannot_be_saved_is_a_type_error_with_its_path(value: Any, text: str, path: Path) -> None:
    with pytest.raises(TypeError, match=f"`w`: {text}"):
        save(path, {"w": value})
    with pytest.raises(TypeError, match=f"`layers/1/w`: {text}"):
        save(path, {"layers": [array(2), {"w": value}]}, separator="/")
    assert not list(path.parent.iterdir())


def test_what_is_stored_and_what_is_not(path: Path) -> None:
    tree = {"a/b": array(1), "[0]": array(2), "": array(3), "f": jax.nn.relu, "t": jnp.float32, "s": "x", "none": None}
    save(path, tree, separator="/")
    assert set(load(path)) == {"a/b", "[0]", ""}
    assert list(load(path, tree)) == list(tree)
    with pytest.raises(TypeError, match="__metadata__"):
        save(path, {"__metadata__": array(1)})
    with pytest.raises(TypeError, match=r"`w/0`: found .*; save outside of functions that jax transforms"):
        jax.jit(lambda x: save(path, {"w": [x]}, separator="/"))(array(2))


def test_modules_of_flax_are_saved_or_refused(path: Path) -> None:
    nnx = pytest.importorskip("flax.nnx")
    opaque = type("Opaque", (nnx.Module,), {}, pytree=False)()
    opaque.linear = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    save(path, opaque.linear)
    assert bits(load(path, opaque.linear).kernel[...]) == bits(opaque.linear.kernel[...])
    for tree, place in ((opaque, "tree"), ({"model": opaque}, "model")):
        with pytest.raises(TypeError, match=f"`{place}`: found Opaque"):
            save(path, tree)


def test_without_safetensors(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for use in (lambda: save(path, {}), lambda: load(path)):
        with pytest.raises(ImportError, match=r'pip install "partax\[io\]"'):
            use()


@pytest.mark.parametrize("own", [None, "{", '{"keys": {"k": "dice"}}', '{"keys": {"gone": "rbg"}}'])
def test_broken_files(own: str | None, path: Path) -> None:
    if own is None:
        path.write_bytes(b"PK" + bytes(100))
    else:
        safetensors.numpy.save_file({"k": np.zeros(2, np.uint32)}, path, metadata={"partax": own})
    for use in (lambda: load(path), lambda: load(path, {"k": jax.random.key(0)})):
        with pytest.raises(ValueError, match=r"^`.*/model.safetensors` cannot be loaded: ."):
            use()


def test_files_of_other_tools_are_read_at_once(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model.safetensors"):
        load(path)
    tree = {"w": patterns("float32"), "c": patterns("complex64")}
    save(path, tree)
    safetensors.numpy.save_file(safetensors.numpy.load_file(path), path, metadata={"format": "pt"})
    loaded = load(path, tree)
    os.truncate(path, 200)
    assert {key: bits(value) for key, value in loaded.items()} == {key: bits(value) for key, value in tree.items()}
    with pytest.raises(ValueError, match=r"model\.safetensors` cannot be loaded"):
        load(path)


@pytest.mark.parametrize("step", ["fsync", "touch", "replace", "serialize"])
def test_a_save_that_fails_leaves_the_old_file(step: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(path, {"w": array(1)})

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "broken disk")

    with monkeypatch.context() as patch:
        if step == "serialize":
            patch.setattr(safetensors.numpy, "save_file", fail)
        else:
            patch.setattr(os if step == "fsync" else Path, step, fail)
        with pytest.raises(OSError):
            save(path, {"w": array(2)})
    assert bits(load(path)["w"]) == bits(array(1)) and os.listdir(path.parent) == [path.name]


def test_permissions_links_and_what_is_no_file(path: Path) -> None:
    save(path, {"w": array(1)})
    (path.parent / "new").touch()
    assert path.stat().st_mode == (path.parent / "new").stat().st_mode
    path.chmod(0o640)
    link = path.parent / "link"
    link.symlink_to(path)
    save(link, {"w": array(2)})
    assert link.is_symlink() and load(path)["w"].shape == (2,) and stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(FileExistsError, match="found something other than a regular file"):
        save(path.parent, {"w": array(1)})
