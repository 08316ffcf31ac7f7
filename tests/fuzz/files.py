"""A file from a fuzzer's bytes: what partax.load makes of it, against what safetensors reads."""

import contextlib
import json
import math
import os
import struct
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import safetensors

import partax
from fuzz.source import Source, outcome
from trees import bits, dtype_of

MADE = ["BOOL", "F4", "F8_E4M3", "I8", "U16", "BF16", "U32", "F32", "F64", "C64"]
DTYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    "C64": "complex64",
    "F4": "float4_e2m1fn",
    **{f"{kind[0].upper()}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"F8_{kind.upper()}": f"float8_{kind}" for kind in ("e5m2", "e4m3fnuz", "e5m2fnuz")},
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
}
UNKNOWN = ["F6_E2M3", "X9", "f32", ""]
NAMES = ["a", "b", "", "__metadata__", "\u00e9", "a/b"]
SIZES = [0, 1, 2, 3, 2**31, 2**63, 2**64, -1, 1.0, None, True]
OWN = [
    None,
    '{"format": 1, "keys": {}}',
    '{"format": 1, "keys": {"a": "threefry2x32"}}',
    '{"format": 1, "keys": {"a": "rbg", "b": "unsafe_rbg"}}',
    '{"format": 2, "keys": {}}',
    '{"format": true}',
    "[" * 3000,
    "null",
    "1e999",
]
LIKES: list[Any] = [
    None,
    {"a": np.zeros(2, np.float32)},
    {"a": np.zeros((), np.bool_), "b": jax.random.key(0)},
    {"a": [np.float32(1), 3]},
]
FOLDER = tempfile.TemporaryDirectory(prefix="partax-fuzz-")
FILE = os.path.join(FOLDER.name, "file")
# A header may make many small objects; what it tells of sizes must not count.
MAX_MEMORY = 4 * 2**20


def check(data: bytes) -> None:
    """Fails where load gives something else than the format says, or an exception that it does not document."""
    source = Source(data)
    how = source.below(4)
    contents = source.rest() if how == 0 else _header_alone(source) if how == 1 else _made(source)
    with open(FILE, "wb") as file:
        file.write(contents)
    expected = outcome(lambda: read_slowly(contents), (ValueError,))
    like = LIKES[len(data) % len(LIKES)]
    with _watched(len(contents)):
        for strict in (True, False):
            found = outcome(lambda s=strict: partax.load(FILE, like, strict=s, separator="/"), (ValueError,))
            if isinstance(found, ValueError):
                assert FILE in str(found) and type(found) is ValueError and len(str(found)) < 25_000
                assert like is not None or isinstance(expected, ValueError), (contents, found)
            elif like is None:
                _compare(found if strict else found[0], expected)
            elif not strict:
                _compare_like(found[0], found[1], like, expected)


def _header_alone(source: Source) -> bytes:
    """The bytes are the header's text, whose length is right; then some data."""
    size = source.byte()
    text = source.rest()
    return struct.pack("<Q", len(text)) + text + bytes(size)


def _made(source: Source) -> bytes:
    """Most of the file is as it ought to be."""
    header: dict[str, Any] = {}
    at = 0
    for _ in range(source.below(4)):
        name = source.pick(NAMES)
        if source.below(8) == 7:
            dtype: Any = source.pick(UNKNOWN)
            shape: list[Any] = [source.pick(SIZES) for _ in range(source.below(5))]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, source.pick(SIZES)]}
            continue
        dtype = source.pick(MADE)
        shape = [source.below(4) for _ in range(source.below(4))]
        size = math.prod(shape) * dtype_of(DTYPES[dtype]).itemsize
        size = -(-size // 2) if dtype == "F4" else size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    own = source.pick(OWN)
    if own is not None:
        header["__metadata__"] = {"partax": own}
    text = bytearray(json.dumps(header).encode())
    for _ in range(source.below(3)):
        text[int.from_bytes(source.take(2), "little") % len(text)] = source.byte()
    body = source.rest()[:at].ljust(at, b"\1")
    length = len(text) + (source.byte() - 9 if source.below(9) == 8 else 0)
    return struct.pack("<Q", max(length, 0)) + text + body


# --- what the format says


def read_slowly(contents: bytes) -> dict[str, Any]:
    """Name to (dtype, shape, bytes) of each array, or (implementation, ...) of a key. ValueError for a bad file."""
    try:
        entries = safetensors.deserialize(contents)
    except safetensors.SafetensorError as error:
        raise ValueError from error
    found = {name: (DTYPES[it["dtype"]], tuple(it["shape"]), bytes(it["data"])) for name, it in entries}
    if any(dtype == "bool" and data.strip(b"\0\1") for dtype, _, data in found.values()):
        raise ValueError("neither true nor false")
    end = 8 + int.from_bytes(contents[:8], "little")
    metadata = json.loads(contents[8:end]).get("__metadata__") or {}
    for name, implementation in _keys(metadata.get("partax")).items():
        dtype, shape, data = found.get(name, ("", (), b""))
        if dtype != "uint32" or shape[-1:] != (KEY_SIZES.get(implementation),):
            raise ValueError("no data of such a key")
        found[name] = implementation, shape[:-1], data
    return found


def _keys(text: str | None) -> dict[str, str]:
    """The implementations of the PRNG keys."""
    try:
        own = {"format": 1, "keys": {}} if text is None else json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if type(own) is not dict or type(own.get("format")) is not int or own["format"] != 1:
        raise ValueError("another format")
    keys = own.get("keys")
    if type(keys) is not dict or not all(type(value) is str for value in keys.values()):
        raise ValueError("no keys")
    return keys


KEY_SIZES = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}


def _compare(found: dict[str, Any], expected: Any) -> None:
    assert not isinstance(expected, ValueError), (expected, found)
    assert list(found) == sorted(expected)
    for name, array in found.items():
        _compare_array(array, expected[name])


def _compare_array(array: Any, expected: tuple[str, tuple[int, ...], bytes]) -> None:
    kind, shape, data = expected
    assert array.shape == shape
    if kind in KEY_SIZES:
        assert str(jax.random.key_impl(array)) == kind and bits(array)[2] == data
        return
    assert array.dtype == dtype_of(kind)
    if kind == "float4_e2m1fn":
        nibbles = np.asarray(array).view(np.uint8).reshape(-1) & 15
        assert (nibbles[::2] | nibbles[1::2] << 4).tobytes() == data
    else:
        assert bits(array)[2] == data


def _compare_like(found: Any, mismatches: Any, like: Any, expected: Any) -> None:
    assert not isinstance(expected, ValueError), (expected, found)
    assert jax.tree.structure(found) == jax.tree.structure(like)
    misfits = {mismatch.path for mismatch in mismatches}
    _, arrays, _ = partax.flat_partition(found, partax.is_array, separator="/")
    for name, array in arrays.items():
        if name not in misfits:
            _compare_array(array, expected[name])


# --- what a file must not do

FORBIDDEN = ("pickle.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename", "subprocess.")
FORBIDDEN += ("socket.", "shutil.", "ctypes.dlopen", "marshal.loads", "code.__new__")
_watching = False


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    global _watching
    if not _watching:
        return
    writes = event == "open" and (arguments[0] != FILE or arguments[1] not in ("rb", "r"))
    if writes or event.startswith(FORBIDDEN):
        _watching = False
        raise AssertionError(f"a file led to {event}{arguments!r}")


@contextlib.contextmanager
def _watched(size: int) -> Iterator[None]:
    """No file is written, nothing runs, and memory is in proportion to the file."""
    global _watching
    tracemalloc.start()
    _watching = True
    try:
        yield
        assert _watching, "something was done that no file may lead to"
        assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY + 100 * size
    finally:
        _watching = False
        tracemalloc.stop()


def _warm_up() -> None:
    """What jax imports when it is first used is imported before anything is watched."""
    for name in KEY_SIZES:
        key = jax.random.key(0, impl=name)
        partax.save(FILE, {"a": key, "b": np.zeros(2, np.float32)})
        for like in (None, {"a": key, "b": jax.numpy.zeros(3)}, {"b": np.zeros(2)}):
            partax.load(FILE, like, strict=like is None)


_warm_up()
sys.addaudithook(_audit)
