"""Guards the promise that save and load keep every array bit by bit under its path, that what does not fit is one error
that says what and where, and that no file, however broken, does more than raise a ValueError with its name."""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import partax
from partax import flat_partition, is_array, load, save
from trees import Bag, Cell, Pair, array, bits, dtype_of, make_model

# The format's names, from its own documentation, and how many bytes an element has.
STORED = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "uint16": ("U16", 2),
    "int16": ("I16", 2),
    "uint32": ("U32", 4),
    "int32": ("I32", 4),
    "uint64": ("U64", 8),
    "int64": ("I64", 8),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1),
    "float4_e2m1fn": ("F4", 0.5),
}
REFUSED = {
    "int1": "int8",
    "uint1": "uint8",
    "int2": "int8",
    "int4": "int8",
    "uint2": "uint8",
    "uint4": "uint8",
    "float6_e2m3fn": "bfloat16",
    "float6_e3m2fn": "bfloat16",
    "float8_e3m4": "bfloat16",
    "float8_e4m3": "bfloat16",
    "float8_e4m3b11fnuz": "bfloat16",
    "complex128": "complex64",
}
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


def raw_file(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def message(raised: pytest.ExceptionInfo[BaseException]) -> str:
    return str(raised.value)


# --- bits


@pytest.mark.parametrize("name", STORED)
def test_every_bit_pattern_is_in_the_file_and_comes_back(name: str, path: Path) -> None:
    value = patterns(name)
    save(path, {"w": value})
    code, shape, data = entries(path)[1]["w"]
    assert (code, shape, len(data)) == (STORED[name][0], [2, 128], 256 * STORED[name][1])
    if name == "float4_e2m1fn":
        values = value.view(np.uint8).reshape(-1).tolist()
        assert data == bytes(low + 16 * high for low, high in zip(values[::2], values[1::2], strict=True))
    else:
        assert data == value.tobytes()
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
    assert message(raised).startswith(f"`layers/0`: found {name}[4], expected a dtype that safetensors stores; ")
    assert f"cast it to {REFUSED[name]}" in message(raised)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "complex128"])
def test_the_cast_that_the_message_names_keeps_the_values(name: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    values = every.view(dtype_of(name)) if "float" in name else every.astype(dtype_of(name))
    there = values.astype(dtype_of(REFUSED[name]))
    np.testing.assert_array_equal(there.astype(np.float64), values.astype(np.float64))


def test_a_list_of_every_dtype_that_jax_has() -> None:
    """A dtype that a new jax brings has to be thought about."""
    names = {name for name in dir(jnp) if isinstance(getattr(jnp, name), type(jnp.float32))}
    aliases = {"single", "double", "csingle", "cdouble", "complex_", "float_", "int_", "uint"}
    assert names - aliases - {"bool_"} <= set(STORED) | set(REFUSED)


@pytest.mark.parametrize(
    "value",
    [
        np.array(["text"]),
        np.array([object()]),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "i4,f4"),
        np.zeros(2, np.longdouble),
        np.str_("text"),
    ],
    ids=lambda value: value.dtype.name,
)
def test_dtypes_that_jax_has_not(value: Any, path: Path) -> None:
    with pytest.raises(TypeError, match=r"`w`: found .*expected a dtype that safetensors stores; .*cast it to"):
        save(path, {"w": value})


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3)])
def test_float4_with_an_odd_last_dimension(shape: tuple[int, ...], path: Path) -> None:
    with pytest.raises(TypeError, match=r"`w`: found float4_e2m1fn\[.*expected an even last dimension.*bfloat16"):
        save(path, {"w": np.zeros(shape, jnp.float4_e2m1fn)})


class Subclass(np.ndarray):
    pass


LAYOUTS: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "big-endian": lambda: patterns("float32").astype(">f4"),
    "big-endian integers": lambda: np.arange(5, dtype=">i8"),
    "big-endian complex": lambda: np.array([1 + 2j, -0.0], dtype=">c8"),
    "Fortran": lambda: np.asfortranarray(patterns("int16")),
    "strided": lambda: patterns("float64")[:, ::3],
    "backwards": lambda: patterns("bfloat16")[::-1, ::-1],
    "broadcast": lambda: np.broadcast_to(np.float32(3), (2, 5)),
    "unaligned": lambda: np.arange(33, dtype=np.uint8)[1:].view(np.float32),
    "read-only": lambda: np.frombuffer(bytes(range(16)), np.int32),
    "no dimension": lambda: np.array(-0.0),
    "one element": lambda: np.zeros((1, 1, 1), np.float16),
    "empty": lambda: np.zeros((0,), np.float32),
    "empty in the middle": lambda: np.zeros((3, 0, 5), jnp.bfloat16),
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


arrays = st.builds(
    lambda name, shape, seed: (
        (
            np.random.default_rng(seed).integers(
                0, 2 if name == "bool" else 256, [*shape, dtype_of(name).itemsize], np.uint8
            )
        )
        .view(dtype_of(name))
        .reshape(shape)
    ),
    st.sampled_from([name for name in STORED if name != "float4_e2m1fn"]),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(0, 2**32 - 1),
)


@pytest.mark.filterwarnings("ignore:.*has no array")
@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(st.dictionaries(st.text(max_size=8).filter(lambda key: key != "__metadata__"), arrays, max_size=6))
def test_random_dictionaries(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("random") / "file"
    save(path, tree)
    back = load(path, tree)
    assert list(back) == list(tree)
    assert {key: bits(value) for key, value in back.items()} == {key: bits(value) for key, value in tree.items()}
    assert list(load(path)) == sorted(tree)


# --- PRNG keys

IMPLEMENTATIONS = ["threefry2x32", "rbg", "unsafe_rbg"]


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
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


def test_a_prng_key_of_another_implementation_is_a_mismatch(path: Path) -> None:
    save(path, {"k": jax.random.key(0, impl="rbg")})
    with pytest.raises(ValueError, match=r"`k`: found key<rbg>\[\], expected key<fry>\[\]"):
        load(path, {"k": jax.random.key(0, impl="threefry2x32")})
    with pytest.raises(ValueError, match=r"`k`: found key<rbg>\[\], expected uint32\[4\]"):
        load(path, {"k": jnp.zeros(4, jnp.uint32)})


# --- paths and the rest of the tree


@pytest.mark.parametrize("separator", [None, "/", "."])
def test_the_keys_are_those_of_flat_partition(separator: str | None, path: Path) -> None:
    tree = {"m": make_model(), "b": Bag(array(2)), "p": Pair(np.float32(1), [Cell(array(3), None), "static"])}
    save(path, tree, separator=separator)
    _, taken, _ = flat_partition(tree, is_array, separator=separator)
    assert set(entries(path)[1]) == set(taken)
    empty = jax.tree.map(lambda leaf: leaf * 0 if is_array(leaf) else leaf, tree)
    back = load(path, empty, separator=separator)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for found, expected in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert bits(found) == bits(expected) if is_array(expected) else found is expected


def test_what_is_static_comes_from_like(path: Path) -> None:
    save(path, {"a": [array(2), "saved", 1, None]})
    function = lambda x: x
    back = load(path, {"a": [array(2, start=5), function, 2, None]})
    assert back["a"][1:] == [function, 2, None] and bits(back["a"][0]) == bits(array(2))


@pytest.mark.filterwarnings("ignore:.*has no array")
@pytest.mark.parametrize("tree", [{"a/b": 1, "[0]": 2}, {"w": 1, "b": None}, {}, {"": 3}], ids=str)
def test_a_dict_of_leaves_is_saved_under_its_own_keys(tree: dict[str, Any], path: Path) -> None:
    tree = {key: value if value is None else array(value) for key, value in tree.items()}
    save(path, tree, separator="/")
    assert set(entries(path)[1]) == {key for key, value in tree.items() if value is not None}
    back = load(path, tree)
    assert list(back) == list(tree)
    assert all(back[key] is None or bits(back[key]) == bits(tree[key]) for key in tree)


def test_paths_that_are_written_alike(path: Path) -> None:
    tree = {"a": {"b": array(1)}, "a/b": array(1, start=7)}
    save(path, tree, separator="/")
    assert set(entries(path)[1]) == {"a/b", "a/b#2"}
    back = load(path, tree, separator="/")
    assert bits(back["a/b"]) == bits(tree["a/b"]) and bits(back["a"]["b"]) == bits(tree["a"]["b"])


def test_the_bytes_of_a_file_depend_on_the_tree_alone(path: Path) -> None:
    tree = {"b": array(3), "a": jax.random.key(0), "c": np.int8(1)}
    save(path, tree)
    first = path.read_bytes()
    save(path, tree)
    assert path.read_bytes() == first


# --- the kinds of arrays


def test_numpy_arrays_are_writable_and_share_nothing(path: Path) -> None:
    like = {"a": np.zeros(4), "b": np.zeros(4)}
    save(path, {"a": np.arange(4.0), "b": np.arange(4.0)})
    first, second = load(path, like), load(path, like)
    first["a"][:] = 9
    assert first["a"].flags.writeable and first["a"].flags.aligned
    assert first["b"].tolist() == second["a"].tolist() == load(path, like)["a"].tolist() == [0, 1, 2, 3]
    assert like["a"].tolist() == [0] * 4


def test_each_leaf_has_the_kind_of_like(path: Path) -> None:
    value = np.float32(2.5)
    save(path, {"w": value})
    assert type(load(path, {"w": np.zeros((), np.float32)})["w"]) is np.ndarray
    assert type(load(path, {"w": np.float32(0)})["w"]) is np.float32
    assert isinstance(load(path, {"w": jnp.float32(0)})["w"], jax.Array)
    assert isinstance(load(path, {"w": jax.ShapeDtypeStruct((), jnp.float32)})["w"], jax.Array)


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


def test_weak_types_become_strong(path: Path) -> None:
    weak = jnp.asarray(1.0)
    assert weak.weak_type
    save(path, {"w": weak})
    assert not load(path, {"w": weak})["w"].weak_type


def test_sixty_four_bits_without_x64(path: Path) -> None:
    save(path, {"w": np.array([1e300, -0.0])})
    back = load(path, {"w": jax.ShapeDtypeStruct((2,), np.float64)})["w"]
    assert isinstance(back, jax.Array) and back.dtype == np.float64
    assert np.asarray(back).tolist() == [1e300, 0.0]
    assert not jax.config.jax_enable_x64


def test_donated_arrays_serve_as_like(path: Path) -> None:
    value = array(3)
    save(path, {"w": value})
    value.delete()
    assert bits(load(path, {"w": value})["w"]) == bits(array(3))


def test_a_big_endian_like_gets_big_endian_arrays(path: Path) -> None:
    save(path, {"w": np.array([1.0, 2.0], np.float32)})
    back = load(path, {"w": np.zeros(2, ">f4")})["w"]
    assert back.dtype.byteorder == ">" and back.tolist() == [1, 2]


# --- what does not fit


def mismatched(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    saved = {"a": array(3), "b": array(2, 2), "weigth": array(4), "same": array(1, start=8), "k": jax.random.key(0)}
    like = {"a": array(4), "b": jnp.zeros((2, 2), jnp.bfloat16), "weight": array(4), "same": array(1), "k": array(2)}
    save(path, {"model": [saved]}, separator="/")
    return {"model": [saved]}, {"model": [like]}


def test_one_error_lists_all_that_does_not_fit(path: Path) -> None:
    _, like = mismatched(path)
    with pytest.raises(ValueError) as raised:
        load(path, like, separator="/")
    assert message(raised).splitlines() == [
        f"`{path}` does not fit `like`:",
        "  `model/0/a`: found float32[3], expected float32[4]",
        "  `model/0/b`: found float32[2,2], expected bfloat16[2,2]",
        "  `model/0/k`: found key<fry>[], expected float32[2]",
        "  `model/0/weight`: found nothing, expected float32[4] (the nearest path in the file is `model/0/weigth`)",
        "  `model/0/weigth`: found float32[4], expected nothing (the nearest path in `like` is `model/0/weight`)",
    ]


def test_strict_false_loads_what_fits_and_returns_the_rest(path: Path) -> None:
    saved, like = mismatched(path)
    back, mismatches = load(path, like, separator="/", strict=False)
    found, leaves = back["model"][0], like["model"][0]
    assert bits(found["same"]) == bits(saved["model"][0]["same"])
    assert all(found[key] is leaves[key] for key in ("a", "b", "weight", "k"))
    assert [(m.path, m.found, m.expected) for m in mismatches] == [
        ("model/0/a", "float32[3]", "float32[4]"),
        ("model/0/b", "float32[2,2]", "bfloat16[2,2]"),
        ("model/0/k", "key<fry>[]", "float32[2]"),
        ("model/0/weight", None, "float32[4]"),
        ("model/0/weigth", "float32[4]", None),
    ]
    assert str(mismatches[3]) == "`model/0/weight`: found nothing, expected float32[4]"
    assert isinstance(mismatches, tuple) and all(isinstance(m, partax.Mismatch) for m in mismatches)


def test_an_array_where_like_has_something_static(path: Path) -> None:
    save(path, {"a": array(2)})
    with pytest.raises(ValueError, match=r"`a`: found float32\[2\], expected nothing"):
        load(path, {"a": 3})


def test_many_mismatches(path: Path) -> None:
    save(path, {f"old{i:05}": np.float32(i) for i in range(5000)})
    like = {f"new{i:05}": np.float32(i) for i in range(5000)}
    with pytest.raises(ValueError, match="and 9900 more") as raised:
        load(path, like)
    assert len(message(raised).splitlines()) == 102
    assert len(load(path, like, strict=False)[1]) == 10000


# --- what cannot be saved


def test_traced_arrays(path: Path) -> None:
    save(path, {"w": array(2)})
    for use in (lambda x: save(path, {"w": [x]}, separator="/"), lambda x: load(path, {"w": [x]}, separator="/")):
        with pytest.raises(TypeError, match=r"`w/0`: found a traced float32\[2\].*outside of functions that jax trans"):
            jax.jit(use)(array(2))
        with pytest.raises(TypeError, match=r"`w/0`: found a traced key<fry>\[\]"):
            jax.jit(use)(jax.random.key(0))
    assert bits(load(path)["w"]) == bits(array(2))


def test_deleted_arrays(path: Path) -> None:
    value = array(2)
    value.delete()
    with pytest.raises(ValueError, match=r"`w`: found a deleted float32\[2\]"):
        save(path, {"w": value})


def test_masked_arrays(path: Path) -> None:
    with pytest.raises(TypeError, match=r"`w`: found a masked array, expected a plain one; save its `data`"):
        save(path, {"w": np.ma.array([1.0, 2.0], mask=[True, False])})


def test_names_that_the_format_cannot_have(path: Path) -> None:
    with pytest.raises(ValueError, match=r"`__metadata__`: .*safetensors reserves it"):
        save(path, {"__metadata__": array(1)})
    with pytest.raises(ValueError, match=r"`'a\\ud800'`: found a lone surrogate"):
        save(path, {"a\ud800": array(1)})


PROCESSES = """
import sys, jax, numpy as np, partax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
index, port, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.distributed.initialize(f"localhost:{port}", 2, index)
mesh = Mesh(np.array(jax.devices()), ("x",))
make = lambda shape, spec, shard: jax.make_array_from_single_device_arrays(
    shape, NamedSharding(mesh, spec), [jax.device_put(shard, jax.local_devices()[0])])
whole = make((2,), PartitionSpec(), np.arange(2.0, dtype=np.float32))
partax.save(path + str(index), {"w": whole})
assert partax.load(path + str(index), {"w": whole})["w"].sharding == whole.sharding
try:
    partax.save(path, {"w": make((2,), PartitionSpec("x"), np.ones(1, np.float32))})
except ValueError as error:
    print("ERROR", error)
"""


@pytest.mark.nightly
def test_arrays_on_devices_of_other_processes(path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=1"  # the last one counts
    environment = {**os.environ, "XLA_FLAGS": flags}
    command = [sys.executable, "-c", PROCESSES]
    running = [
        subprocess.Popen([*command, str(i), str(port), str(path)], stdout=subprocess.PIPE, env=environment, text=True)
        for i in range(2)
    ]
    outputs = []
    for process in running:
        with process:
            try:
                outputs.append(process.communicate(timeout=120)[0])
            finally:
                process.kill()
    for process, output in zip(running, outputs, strict=True):
        assert process.returncode == 0
        assert "ERROR `w`: found a float32[2] on devices of several processes, expected all of it here; " in output
    assert not path.exists()


def test_nothing_is_pickled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("pickled")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    tree = {"m": make_model(), "k": jax.random.key(0)}
    save(path, tree)
    load(path, tree)


def test_without_safetensors(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for use in (lambda: save(path, {}), lambda: load(path)):
        with pytest.raises(ImportError, match=r'pip install "partax\[io\]"') as raised:
            use()
        assert raised.value.name == "safetensors"


# --- other tools, and other versions


def test_other_tools_read_what_we_save(path: Path) -> None:
    tree = {"w": patterns("float32"), "n": np.arange(3), "b": patterns("bool"), "c": patterns("complex64")}
    save(path, tree)
    back = safetensors.numpy.load_file(path)
    assert {key: bits(value) for key, value in back.items()} == {key: bits(value) for key, value in tree.items()}


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}], ids=str)
def test_files_of_other_tools(metadata: dict[str, str] | None, path: Path) -> None:
    tree = {"w": patterns("float32"), "n": np.arange(3)}
    safetensors.numpy.save_file(tree, path, metadata=metadata)
    back = load(path, tree)
    assert {key: bits(value) for key, value in back.items()} == {key: bits(value) for key, value in tree.items()}


def test_a_file_of_a_newer_version(path: Path) -> None:
    safetensors.numpy.save_file({"w": np.zeros(1)}, path, metadata={"partax": '{"format": 2, "more": []}'})
    with pytest.raises(
        ValueError, match=r"model.safetensors` cannot be loaded: found format 2, expected at most 1; .*new"
    ):
        load(path)


# --- broken files


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused_before_it_is_read(name: str) -> None:
    if not Path(name).exists():
        pytest.skip("the system has no such device")
    with pytest.raises(ValueError, match=f"`{name}` cannot be loaded: found a device or a pipe"):
        load(name, {"w": np.zeros(1)})


def own(text: str) -> bytes:
    return raw_file({"__metadata__": {"partax": text}, "k": entry("U32", [2], 0, 8)}, bytes(8))


U8 = entry("U8", [1], 0, 1)
BROKEN: dict[str, bytes] = {
    "empty": b"",
    "shorter than its length": b"\1\2\3",
    "no header": struct.pack("<Q", 2),
    "huge header": raw_file({}, length=2**40),
    "largest header": raw_file({}, length=2**64 - 1),
    "header without a length": raw_file(b""),
    "no JSON": raw_file(b"{]"),
    "no object": raw_file(b"[]"),
    "no UTF-8": raw_file(b'{"\xff": 1}'),
    "UTF-16": raw_file("{}".encode("utf-16")),
    "deep JSON": raw_file(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "negative size": raw_file({"a": entry("U8", [-1], 0, 1)}, b"1"),
    "fraction as size": raw_file(b'{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', b"1"),
    "sizes that overflow": raw_file({"a": entry("U8", [2**32, 2**32], 0, 0)}),
    "sizes that overflow beside zero": raw_file({"a": entry("F32", [2**63, 2, 0], 0, 0)}),
    "size beyond memory beside zero": raw_file({"a": entry("F32", [0, 2**63], 0, 0)}),
    "size beyond 64 bits": raw_file({"a": entry("U8", [2**70], 0, 1)}, b"1"),
    "too many dimensions": raw_file({"a": entry("U8", [1] * 1000, 0, 1)}, b"1"),
    "more data than told": raw_file({"a": U8}, b"12"),
    "less data than told": raw_file({"a": entry("U8", [9], 0, 9)}, b"1"),
    "petabytes told": raw_file({"a": entry("U8", [2**50], 0, 2**50)}, b"1"),
    "shape and length differ": raw_file({"a": entry("U8", [3], 0, 2)}, b"12"),
    "overlap": raw_file({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"123"),
    "hole": raw_file({"a": U8, "b": entry("U8", [1], 2, 3)}, b"123"),
    "offsets backwards": raw_file({"a": entry("U8", [1], 1, 0)}, b"1"),
    "same name twice": raw_file(b'{"a":%b,"a":%b}' % ((json.dumps(U8).encode(),) * 2), b"1"),
    "same name twice, other data": raw_file(
        b'{"a":%b,"a":%b}' % (json.dumps(U8).encode(), json.dumps(entry("U8", [1], 1, 2)).encode()), b"12"
    ),
    "unknown dtype": raw_file({"a": entry("X9", [1], 0, 1)}, b"1"),
    "dtype that NumPy has not": raw_file({"a": entry("F6_E2M3", [4], 0, 3)}, b"123"),
    "half a byte": raw_file({"a": entry("F4", [3], 0, 2)}, b"12"),
    "neither true nor false": raw_file({"a": entry("BOOL", [2], 0, 2)}, b"\1\2"),
    "metadata of numbers": raw_file({"__metadata__": {"partax": 1}}),
    "metadata as a list": raw_file({"__metadata__": ["partax"]}),
    "own: no JSON": own("{"),
    "own: deep JSON": own("[" * 100_000),
    "own: a long number": own("1" * 10_000),
    "own: null": own("null"),
    "own: a list": own("[1]"),
    "own: no format": own('{"keys": {}}'),
    "own: format 0": own('{"format": 0, "keys": {}}'),
    "own: format true": own('{"format": true, "keys": {}}'),
    "own: format 1e400": own('{"format": 1e400, "keys": {}}'),
    "own: no keys": own('{"format": 1}'),
    "own: keys as a list": own('{"format": 1, "keys": ["k"]}'),
    "own: implementation as a number": own('{"format": 1, "keys": {"k": 1}}'),
    "own: unknown implementation": own('{"format": 1, "keys": {"k": "dice"}}'),
    "own: implementation of another size": own('{"format": 1, "keys": {"k": "rbg"}}'),
    "own: key that is not there": own('{"format": 1, "keys": {"other": "threefry2x32"}}'),
    "own: key in the metadata": own('{"format": 1, "keys": {"__metadata__": "threefry2x32"}}'),
    "key data of another dtype": raw_file(
        {"__metadata__": {"partax": '{"format": 1, "keys": {"k": "threefry2x32"}}'}, "k": entry("U64", [2], 0, 16)},
        bytes(16),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(name: str, path: Path) -> None:
    path.write_bytes(BROKEN[name])
    for use in (lambda: load(path), lambda: load(path, {"a": array(2)}, strict=False)):
        with pytest.raises(ValueError, match=r"^`.*/model.safetensors` cannot be loaded: .") as raised:
            use()
        assert type(raised.value) is ValueError and len(message(raised)) < 25_000


def test_the_file_that_the_broken_ones_come_from_is_good(path: Path) -> None:
    path.write_bytes(own('{"format": 1, "keys": {"k": "threefry2x32"}}'))
    assert bits(load(path)["k"]) == bits(jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32), impl="threefry2x32"))


def victim() -> dict[str, Any]:
    return {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "b": patterns("bool")[0], "k": jax.random.key(1)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "file"
    save(path, victim())
    return path.read_bytes()


def check_survives(path: Path, data: bytes) -> None:
    """The file gives arrays or a ValueError, and nothing else."""
    path.write_bytes(data)
    for use in (lambda: load(path), lambda: load(path, victim(), strict=False)):
        try:
            tree = use()
        except ValueError as error:
            assert str(path) in str(error)
        else:
            jax.block_until_ready([leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)])


def test_every_truncation(whole: bytes, path: Path) -> None:
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"model.safetensors` cannot be loaded"):
            load(path)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(data=st.data())
def test_random_damage(whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    damaged = bytearray(whole)
    header = 8 + int.from_bytes(whole[:8], "little")
    places = st.one_of(st.integers(0, header - 1), st.integers(0, len(whole) - 1))
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=4)):
        damaged[place] = value
    end = data.draw(st.one_of(st.just(len(damaged)), st.integers(0, len(damaged))))
    path = tmp_path_factory.getbasetemp() / "damaged"
    check_survives(path, bytes(damaged[:end]))


def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model.safetensors"):
        load(path)
    with pytest.raises(IsADirectoryError):
        load(path.parent)
