"""Guards the promise that no file, however broken, does more to who loads it than raise a ValueError with its name."""

import json
import struct
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from partax import load
from trees import array, bits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def raw_file(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_a_file_of_a_newer_version(path: Path) -> None:
    safetensors.numpy.save_file({"w": np.zeros(1)}, path, metadata={"partax": '{"format": 2, "more": []}'})
    with pytest.raises(ValueError, match=r"model.safetensors` cannot be loaded: found format 2, expected at most 1"):
        load(path)


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused_before_it_is_read(name: str) -> None:
    if not Path(name).exists():
        pytest.skip("the system has no such device")
    with pytest.raises(ValueError, match=f"`{name}` cannot be loaded: found a device or a pipe"):
        load(name, {"w": np.zeros(1)})


def own(text: str) -> bytes:
    return raw_file({"__metadata__": {"partax": text}, "k": entry("U32", [2], 0, 8)}, bytes(8))


U8 = entry("U8", [1], 0, 1)
# One of those that safetensors refuses, and all of which it leaves to us; the fuzzer's corpus has more of both.
BROKEN: dict[str, bytes] = {
    "empty": b"",
    "huge header": raw_file({}, length=2**40),
    "no object": raw_file(b"[]"),
    "size beyond memory beside zero": raw_file({"a": entry("F32", [0, 2**63], 0, 0)}),
    "petabytes told": raw_file({"a": entry("U8", [2**50], 0, 2**50)}, b"1"),
    "hole": raw_file({"a": U8, "b": entry("U8", [1], 2, 3)}, b"123"),
    "same name twice": raw_file(b'{"a":%b,"a":%b}' % ((json.dumps(U8).encode(),) * 2), b"1"),
    "dtype that NumPy has not": raw_file({"a": entry("F6_E2M3", [4], 0, 3)}, b"123"),
    "half a byte": raw_file({"a": entry("F4", [3], 0, 2)}, b"12"),
    "neither true nor false": raw_file({"a": entry("BOOL", [2], 0, 2)}, b"\1\2"),
    "cut off": own('{"format": 1, "keys": {}}')[:-1],
    "own: no JSON": own("{"),
    "own: deep JSON": own("[" * 100_000),
    "own: null": own("null"),
    "own: format true": own('{"format": true, "keys": {}}'),
    "own: no keys": own('{"format": 1}'),
    "own: unknown implementation": own('{"format": 1, "keys": {"k": "dice"}}'),
    "own: implementation of another size": own('{"format": 1, "keys": {"k": "rbg"}}'),
    "own: key that is not there": own('{"format": 1, "keys": {"other": "threefry2x32"}}'),
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
        assert type(raised.value) is ValueError and len(str(raised.value)) < 25_000


def test_the_file_that_the_broken_ones_come_from_is_good(path: Path) -> None:
    path.write_bytes(own('{"format": 1, "keys": {"k": "threefry2x32"}}'))
    assert bits(load(path)["k"]) == bits(jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32), impl="threefry2x32"))


def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model.safetensors"):
        load(path)
    with pytest.raises(IsADirectoryError):
        load(path.parent)
