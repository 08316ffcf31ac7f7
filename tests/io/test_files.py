"""Guards the promise that save and load keep every array bit by bit under its path, in the kind and the place that the
tree to load into says, and that what does not fit is one error that says what and where."""

import json
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import partax
from odd_values import gone
from partax import flat_partition, is_array, load, save
from trees import Bag, Cell, Pair, array, bits, dtype_of, make_model

# The format's names, from its own documentation.
CODES = """
bool BOOL uint8 U8 int8 I8 uint16 U16 int16 I16 uint32 U32 int32 I32 uint64 U64 int64 I64 float16 F16 bfloat16 BF16
float32 F32 float64 F64 complex64 C64 float4_e2m1fn F4 float8_e4m3fn F8_E4M3 float8_e4m3fnuz F8_E4M3FNUZ
float8_e5m2 F8_E5M2 float8_e5m2fnuz F8_E5M2FNUZ float8_e8m0fnu F8_E8M0
"""
STORED = dict(zip(CODES.split()[::2], CODES.split()[1::2], strict=True))
FLOATS = "float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz"
CASTS = {"int8": "int1 int2 int4", "uint8": "uint1 uint2 uint4", "bfloat16": FLOATS, "complex64": "complex128"}
REFUSED = {name: cast for cast, names in CASTS.items() for name in names.split()}
WIDE = ("uint64", "int64", "float64")


def patterns(name: str) -> np.ndarray[Any, Any]:
    """An array of shape (2, 128) with every byte in every place: all NaNs, both zeros, subnormals."""
    if name == "bool":
        return np.arange(256).reshape(2, 128) % 3 == 0
    if name == "float4_e2m1fn":
        return (np.arange(256, dtype=np.uint8).reshape(2, 128) * 7 % 16).view(dtype_of(name))
    size = dtype_of(name).itemsize
    places = [np.random.default_rng(place).permutation(256).astype(np.uint8) for place in range(size)]
    return np.stack(places, axis=-1).reshape(-1).view(dtype_of(name)).reshape(2, 128)


def entries(path: Path) -> tuple[dict[str, Any], dict[str, tuple[str, list[int], bytes]]]:
    """The metadata and the tensors of a file, read by the words of the format's documentation alone."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    metadata = header.pop("__metadata__", {})
    return metadata, {
        key: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])]) for key, entry in header.items()
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("name", STORED)
def test_every_bit_pattern_is_in_the_file_and_comes_back(name: str, path: Path) -> None:
    value = patterns(name)
    save(path, {"w": value})
    written = value.tobytes()
    if name == "float4_e2m1fn":
        written = bytes(low + 16 * high for low, high in zip(written[::2], written[1::2], strict=True))
    assert entries(path)[1]["w"] == (STORED[name], [2, 128], written)
    back = load(path, {"w": np.zeros_like(value)})["w"]
    assert type(back) is np.ndarray and bits(back) == bits(value)
    back = load(path)["w"]
    assert isinstance(back, np.ndarray if name in WIDE else jax.Array) and bits(back) == bits(value)
    with jax.enable_x64(True):
        back, on_device = load(path)["w"], jax.device_put(value)
    assert isinstance(back, jax.Array) and bits(back) == bits(on_device) == bits(value)
    save(path, {"w": on_device})
    for like in (on_device, jax.ShapeDtypeStruct(value.shape, value.dtype)):
        back = load(path, {"w": like})["w"]
        assert isinstance(back, jax.Array) and bits(back) == bits(value)


@pytest.mark.parametrize("name", REFUSED)
def test_dtypes_that_safetensors_has_not(name: str, path: Path) -> None:
    value = np.arange(4).astype(dtype_of(name))
    with pytest.raises(TypeError) as raised:
        save(path, {"layers": [value]}, separator="/")
    assert str(raised.value).startswith(f"`layers/0`: found {name}[4], expected a dtype that safetensors stores; ")
    assert f"cast it to {REFUSED[name]}" in str(raised.value)
    assert not list(path.parent.iterdir())


def test_a_list_of_every_dtype_that_jax_has() -> None:
    """A dtype that a new jax brings has to be thought about."""
    names = {name for name in dir(jnp) if isinstance(getattr(jnp, name), type(jnp.float32))}
    aliases = {"single", "double", "csingle", "cdouble", "complex_", "float_", "int_", "uint"}
    assert names - aliases - {"bool_"} <= set(STORED) | set(REFUSED)


NO_DTYPE = "found .*expected a dtype that safetensors stores; .*cast it to"
ODD = r"found float4_e2m1fn\[.*expected an even last dimension.*bfloat16"
CANNOT: list[tuple[Any, str]] = [
    *((value, NO_DTYPE) for value in (np.array(["text"]), np.array([object()]), np.zeros(2, "M8[s]"), np.str_("text"))),
    *((np.zeros(2, dtype), NO_DTYPE) for dtype in ("i4,f4", np.longdouble)),
    *((np.zeros(shape, jnp.float4_e2m1fn), ODD) for shape in ((), (3,), (2, 3), (0, 3))),
    (gone(2), r"found a deleted float32\[2\]"),
    (np.ma.array([1.0], mask=[True]), "found a masked array, expected a plain one; save its `data`"),
]


@pytest.mark.parametrize(("value", "told"), CANNOT, ids=range(len(CANNOT)))
def test_arrays_that_cannot_be_saved(value: Any, told: str, path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match=f"`w`: {told}"):
        save(path, {"w": value})


class Subclass(np.ndarray):
    pass


LAYOUTS: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "big-endian": lambda: patterns("float32").astype(">f4"),
    "Fortran": lambda: np.asfortranarray(patterns("int16")),
    "backwards": lambda: patterns("bfloat16")[::-1, ::-3],
    "broadcast": lambda: np.broadcast_to(np.float32(3), (2, 5)),
    "unaligned": lambda: np.arange(33, dtype=np.uint8)[1:].view(np.float32),
    "no dimension": lambda: np.array(-0.0),
    "empty": lambda: np.zeros((3, 0, 5), jnp.bfloat16),
    "empty float4": lambda: np.zeros((3, 0), jnp.float4_e2m1fn),
    "subclass": lambda: np.arange(4.0).reshape(2, 2).view(Subclass),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_numpy_arrays(name: str, path: Path) -> None:
    value = LAYOUTS[name]()
    save(path, {"w": value, "other": np.float32(1)})
    back = load(path, {"w": value, "other": np.float32(0)})["w"]
    assert type(back) is np.ndarray
    assert back.dtype == value.dtype and back.dtype.byteorder == value.dtype.byteorder
    assert bits(back) == bits(value)


@pytest.mark.parametrize("name", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_prng_keys(name: str, path: Path) -> None:
    keys = {"one": jax.random.key(3, impl=name), "many": jax.random.split(jax.random.key(4, impl=name), (2, 3))}
    save(path, keys)
    assert json.loads(entries(path)[0]["partax"]) == {"format": 1, "keys": {"one": name, "many": name}}
    structs = jax.eval_shape(lambda: keys)
    for back in (load(path), load(path, keys), load(path, structs)):
        for key, value in keys.items():
            assert back[key].dtype == value.dtype and bits(back[key]) == bits(value)
            assert jax.random.key_impl(back[key]) == name
    np.testing.assert_array_equal(jax.random.normal(load(path)["one"], 3), jax.random.normal(keys["one"], 3))


@pytest.mark.parametrize("separator", [None, "/", "."])
def test_the_keys_are_those_of_flat_partition(separator: str | None, path: Path) -> None:
    tree: dict[str, Any] = {"m": make_model(), "p": Pair(np.float32(1), [Cell(array(3), None), "static"])}
    tree |= {"b": Bag(array(2)), "a": {"b": array(1)}, "a/b": array(1, start=7)}  # two paths that `/` writes alike
    save(path, tree, separator=separator)
    _, taken, _ = flat_partition(tree, is_array, separator=separator)
    assert set(entries(path)[1]) == set(taken)
    like = jax.tree.map(lambda leaf: leaf * 0 if is_array(leaf) else object(), tree)
    back = load(path, like, separator=separator)
    assert jax.tree.structure(back) == jax.tree.structure(like)
    for found, own, saved in zip(*map(jax.tree.leaves, (back, like, tree)), strict=True):
        assert bits(found) == bits(saved) if is_array(saved) else found is own


@pytest.mark.filterwarnings("ignore:.*has no array")
@pytest.mark.parametrize("tree", [{"a/b": 1, "[0]": 2}, {"w": 1, "b": None}, {}, {"": 3}], ids=str)
def test_a_dict_of_leaves_is_saved_under_its_own_keys(tree: dict[str, Any], path: Path) -> None:
    tree = {key: value if value is None else array(value) for key, value in tree.items()}
    save(path, tree, separator="/")
    assert set(entries(path)[1]) == {key for key, value in tree.items() if value is not None}
    back = load(path, tree)
    assert list(back) == list(tree)
    assert all(back[key] is None or bits(back[key]) == bits(tree[key]) for key in tree)


def test_the_bytes_of_a_file_depend_on_the_tree_alone(path: Path) -> None:
    tree = {"b": array(3), "a": jax.random.key(0), "c": np.int8(1)}
    save(path, tree)
    first = path.read_bytes()
    save(path, tree)
    assert path.read_bytes() == first


def test_numpy_arrays_are_writable_and_share_nothing(path: Path) -> None:
    like = {"a": np.zeros(4), "b": np.zeros(4)}
    save(path, {"a": np.arange(4.0), "b": np.arange(4.0)})
    first, second = load(path, like), load(path, like)
    first["a"][:] = 9
    assert first["a"].flags.writeable and first["a"].flags.aligned
    assert first["b"].tolist() == second["a"].tolist() == load(path, like)["a"].tolist() == [0, 1, 2, 3]
    assert like["a"].tolist() == [0] * 4


@pytest.mark.parametrize(
    ("like", "kind"),
    [(np.float32(0), np.float32), (jnp.asarray(1.0), jax.Array), (gone(), jax.Array)],
    ids=["a NumPy scalar", "a weak type", "a donated array"],
)
def test_each_leaf_has_the_kind_of_like(like: Any, kind: type, path: Path) -> None:
    save(path, {"w": np.float32(2.5)})
    back = load(path, {"w": like})["w"]
    assert isinstance(back, kind) and not getattr(back, "weak_type", False)
    assert back.dtype == np.float32 and back == 2.5


def test_arrays_come_onto_the_sharding_of_like(path: Path, devices: list[jax.Device]) -> None:
    mesh = Mesh(np.array(devices), ("x",))
    split, whole = NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec())
    value = {
        "split": jax.device_put(array(16, 3), split),
        "whole": jax.device_put(array(5), whole),
        "placed": jax.device_put(array(5), devices[3]),
        "keys": jax.device_put(jax.random.split(jax.random.key(0), 8), split),
        "free": array(5),
    }
    save(path, value)
    structs = {
        key: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=None if key == "free" else leaf.sharding)
        for key, leaf in value.items()
    }
    for like in (value, structs):
        back = load(path, like)
        for key, leaf in value.items():
            assert back[key].sharding == leaf.sharding and back[key].committed == leaf.committed, key
            assert bits(back[key]) == bits(leaf)
    with jax.default_device(devices[2]):
        assert load(path, value)["free"].devices() == {devices[2]}


def test_all_that_does_not_fit_is_in_one_error_or_beside_what_fits(path: Path) -> None:
    saved = {"a": array(3), "b": array(2, 2), "weigth\r": array(4), "same": array(1, start=8), "k": jax.random.key(0)}
    like = {"a": array(4), "b": jnp.zeros((2, 2), jnp.bfloat16), "weight": array(4), "same": array(1), "k": array(2)}
    save(path, {"model": [saved]}, separator="/")
    with pytest.raises(ValueError) as raised:
        load(path, {"model": [like]}, separator="/")
    assert str(raised.value).splitlines() == [
        f"`{path}` does not fit `like`:",
        "  `model/0/a`: found float32[3], expected float32[4]",
        "  `model/0/b`: found float32[2,2], expected bfloat16[2,2]",
        "  `model/0/k`: found key<fry>[], expected float32[2]",
        "  `model/0/weight`: found nothing, expected float32[4] (the nearest path in the file is `model/0/weigth\\r`)",
        "  `model/0/weigth\\r`: found float32[4], expected nothing (the nearest path in `like` is `model/0/weight`)",
    ]
    back, mismatches = load(path, {"model": [like]}, separator="/", strict=False)
    found = back["model"][0]
    assert bits(found["same"]) == bits(saved["same"]) and all(found[key] is like[key] for key in like if key != "same")
    assert isinstance(mismatches, tuple) and all(isinstance(it, partax.Mismatch) for it in mismatches)
    assert mismatches[3] == partax.Mismatch("model/0/weight", None, "float32[4]")
    assert [f"  {it}" for it in mismatches] == [
        line.partition(" (the")[0] for line in str(raised.value).splitlines()[1:]
    ]


def test_what_the_file_has_otherwise(path: Path) -> None:
    key = jax.random.key(0, impl="rbg")
    for saved, like, found, expected in (
        (array(2), 3, r"float32\[2\]", "nothing"),
        (key, jax.random.key(0, impl="threefry2x32"), r"key<rbg>\[\]", r"key<fry>\[\]"),
    ):
        save(path, {"k": saved})
        with pytest.raises(ValueError, match=f"`k`: found {found}, expected {expected}"):
            load(path, {"k": like})
    save(path, {f"old{i:05}": np.float32(i) for i in range(500)})
    like = {f"new{i:05}": np.float32(i) for i in range(500)}
    with pytest.raises(ValueError, match="and 900 more") as raised:
        load(path, like)
    assert len(str(raised.value).splitlines()) == 102 and len(load(path, like, strict=False)[1]) == 1000


def test_traced_arrays(path: Path) -> None:
    save(path, {"w": array(2)})
    for use in (lambda x: save(path, {"w": [x]}, separator="/"), lambda x: load(path, {"w": [x]}, separator="/")):
        with pytest.raises(TypeError, match=r"`w/0`: found a traced float32\[2\].*outside of functions that jax trans"):
            jax.jit(use)(array(2))
        with pytest.raises(TypeError, match=r"`w/0`: found a traced key<fry>\[\]"):
            jax.jit(use)(jax.random.key(0))
    assert bits(load(path)["w"]) == bits(array(2))


def test_names_that_the_format_cannot_have(path: Path) -> None:
    with pytest.raises(ValueError, match=r"`__metadata__`: .*safetensors reserves it"):
        save(path, {"__metadata__": array(1)})
    with pytest.raises(ValueError, match=r"`'a\\ud800'`: found a lone surrogate"):
        save(path, {"a\ud800": array(1)})


def test_nothing_is_pickled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_, **__: pytest.fail("pickled"))
    tree = {"m": make_model(), "k": jax.random.key(0)}
    save(path, tree)
    load(path, tree)


def test_without_safetensors(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for use in (lambda: save(path, {}), lambda: load(path)):
        with pytest.raises(ImportError, match=r'pip install "partax\[io\]"') as raised:
            use()
        assert raised.value.name == "safetensors"


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}], ids=str)
def test_files_of_other_tools_and_for_them(metadata: dict[str, str] | None, path: Path) -> None:
    tree = {"w": patterns("float32"), "n": np.arange(3), "b": patterns("bool"), "c": patterns("complex64")}
    save(path, tree)
    read = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file(read, path, metadata=metadata)
    for back in (read, load(path, tree)):
        assert {key: bits(value) for key, value in back.items()} == {key: bits(value) for key, value in tree.items()}
