"""The bytes of safetensors files: dtypes, metadata, reading and writing."""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from partax._io.whole_file import replace_file
from partax._pytree.short_text import array_text

# Of what we say in a file's metadata. A file without it is one of another tool, and loads too.
_FORMAT = 1
_OWN = "partax"
RESERVED_NAME = "__metadata__"

_CODES = """
BOOL bool U8 uint8 I8 int8 U16 uint16 I16 int16 U32 uint32 I32 int32 U64 uint64 I64 int64
F16 float16 F32 float32 F64 float64 BF16 bfloat16 F8_E4M3 float8_e4m3fn F8_E4M3FNUZ float8_e4m3fnuz F8_E5M2 float8_e5m2
F8_E5M2FNUZ float8_e5m2fnuz F8_E8M0 float8_e8m0fnu F4 float4_e2m1fn C64 complex64
"""
_PAIRS = _CODES.split()
_DTYPES = {code: np.dtype(name) for code, name in zip(_PAIRS[::2], _PAIRS[1::2], strict=True)}
STORED_DTYPES = {dtype.name for dtype in _DTYPES.values()}
FLOAT4 = "float4_e2m1fn"


def safetensors_library() -> Any:
    """The library; an ImportError tells what to install."""
    missing = 'saving and loading need safetensors 0.8 or later, which was not found: pip install "partax[io]"'
    try:
        import safetensors
    except ImportError as error:
        raise ImportError(missing, name="safetensors") from error
    if not hasattr(safetensors, "TensorSpec"):  # there since 0.8
        raise ImportError(missing, name="safetensors")
    return safetensors


def is_key(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


# --- writing


def write_arrays(name: str, arrays: Mapping[str, Any], data: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    """Replaces a file, at once or not at all. By path, `arrays` are what to store, `data` their values as NumPy arrays,
    of typed PRNG keys their data, and `keys` the implementations of these.
    """
    library = safetensors_library()
    stored = {key: _stored_form(values) for key, values in data.items()}
    specs: dict[str, Any] = {}
    for key, values in stored.items():
        # For packed dtypes the library is told the shape of the bytes.
        dtype = f"{FLOAT4}_x2" if arrays[key].dtype.name == FLOAT4 else values.dtype.name
        place = {"data_ptr": values.ctypes.data, "data_len": values.nbytes}
        specs[key] = library.TensorSpec(dtype=dtype, shape=values.shape, **place)
    own = json.dumps({"format": _FORMAT, "keys": keys})
    try:
        replace_file(os.path.realpath(name), lambda fresh: library.serialize_file(specs, fresh, metadata={_OWN: own}))
    except library.SafetensorError as error:
        # The library tells the number of the system's error only in its message.
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise ValueError(f"`{name}` cannot be saved: {error}") from error
        raise OSError(int(number[1]), os.strerror(int(number[1])), name) from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error


def _stored_form(array: Any) -> np.ndarray[Any, Any]:
    """The array with the bytes of the file: in C order, little-endian, float4 packed."""
    array = np.asarray(array, order="C")
    if array.dtype.byteorder == ">":
        array = array.byteswap().view(array.dtype.newbyteorder("<"))
    if array.dtype.name == FLOAT4:
        nibbles = array.view(np.uint8) & 15
        array = nibbles[..., ::2] | nibbles[..., 1::2] << 4
    return array


# --- reading


def read_arrays(name: str) -> dict[str, Any]:
    """The arrays of a file: NumPy arrays, and typed PRNG keys."""
    library = safetensors_library()
    if os.path.exists(name) and not (os.path.isfile(name) or os.path.isdir(name)):  # a device may have no end
        raise ValueError(f"`{name}` cannot be loaded: found a device or a pipe, expected a safetensors file")
    with open(name, "rb") as file:
        data = file.read()
    try:
        tensors: list[tuple[str, dict[str, Any]]] = library.deserialize(data)
        implementations = _key_implementations(data)
        del data
        arrays: dict[str, Any] = {key: _array(key, tensor) for key, tensor in tensors}
        for key, implementation in implementations.items():
            arrays[key] = _key_array(key, arrays.get(key), implementation)
        return arrays
    except (library.SafetensorError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"`{name}` cannot be loaded: {_other_format(name) or error}") from error


def _other_format(name: str) -> str:
    """What a file is that is no safetensors file, as far as its first bytes tell; else empty."""
    with open(name, "rb") as file:
        begin = file.read(9)
    if begin[8:] in (b"{", b""):  # after the length of the header; or what is cut off
        return ""
    kinds = {b"PK": "a zip archive, as of numpy.savez or torch.save", b"\x93NUMPY": "a file of numpy.save"}
    kinds |= {b"\x80": "a pickle", b"\x89HDF": "an HDF5 file", b"GGUF": "a GGUF file"}
    kind = next((kinds[mark] for mark in kinds if begin.startswith(mark)), "a file of another kind")
    return f"found {kind}, which begins with {begin!r}, expected a safetensors file"


def _key_implementations(data: bytes) -> dict[str, str]:
    """The implementations of the typed PRNG keys in a file, by path. The library does not show the metadata."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end].decode(), object_pairs_hook=_without_duplicates)
    text = (header.get(RESERVED_NAME) or {}).get(_OWN)
    if text is None:
        return {}
    own = json.loads(text)
    version = own.get("format") if isinstance(own, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError(f"found format {version!r} in the metadata, expected a number from 1 to {_FORMAT}")
    if version > _FORMAT:
        raise ValueError(
            f"found format {version}, expected at most {_FORMAT}; it is of a newer partax, which can load it"
        )
    keys = own.get("keys")
    if not isinstance(keys, dict) or not all(isinstance(implementation, str) for implementation in keys.values()):
        raise ValueError(f"found keys {keys!r} in the metadata, expected a dictionary from path to PRNG implementation")
    return keys


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("found a name twice in the header, expected each once")
    return members


def _array(key: str, tensor: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    code = tensor["dtype"]
    if code not in _DTYPES:
        raise ValueError(f"`{key}`: found dtype {code}, expected one of {', '.join(_DTYPES)}")
    data = np.frombuffer(tensor["data"], np.uint8)
    if code == "BOOL" and (data > 1).any():
        raise ValueError(f"`{key}`: found a byte that is neither 0 nor 1, expected booleans")
    if code == "F4":
        data = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)
    return data.view(_DTYPES[code]).reshape(tensor["shape"])


def _key_array(key: str, data: np.ndarray[Any, Any] | None, implementation: str) -> jax.Array:
    if data is None:
        raise ValueError(f"`{key}`: found a PRNG key in the metadata only, expected its data")
    wrong = f"`{key}`: found {array_text(data)}, expected data of a {implementation!r} PRNG key"
    if data.dtype != np.uint32:
        raise ValueError(wrong)
    try:
        return jax.random.wrap_key_data(jnp.asarray(data), impl=implementation)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{wrong}: {error}") from error
