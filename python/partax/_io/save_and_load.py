"""Saving arrays by path in safetensors files, and loading them."""

import json
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax._io.whole_file import replace_file
from partax._pytree.filters import is_array, is_key
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.short_text import array_text, printable, short_text

_DTYPES = """bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64
float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"""


def save(path: str | os.PathLike[str], tree_or_dict: Any, *, separator: str | None = None) -> None:
    """Save the arrays of a tree in a safetensors file, each under its path.

    Example:
      >>> partax.save("model.safetensors", {"weight": jnp.ones(2), "name": "linear"})

    Args:
      path: The file. An existing one is replaced atomically.
      tree_or_dict: Any pytree, whose arrays get the paths of `flat_partition`; or a dictionary of arrays by path.
      separator: The separator in paths. Same as in `flat_partition`. Default: None.

    Raises:
      TypeError: An array cannot be stored; the message has its path. Or `path` is not a path.
      OSError: The file cannot be written.
      ImportError: safetensors is not installed.

    See Also: The guide "Save and load models".
    """
    library = _safetensors(path)
    leaves, _ = _by_path(tree_or_dict, separator, lambda leaf: is_array(leaf) or bool(_advice(leaf)))
    for key, leaf in leaves.items():
        if advice := ("rename it, since safetensors has this name" if key == "__metadata__" else _advice(leaf)):
            raise TypeError(f"`{key or 'tree'}`: found {short_text(leaf)}, expected an array to store; {advice}")
    keys = {key: str(jax.random.key_impl(leaf)) for key, leaf in leaves.items() if is_key(leaf)}
    arrays = jax.device_get({key: jax.random.key_data(leaf) if key in keys else leaf for key, leaf in leaves.items()})
    arrays = {key: np.asarray(array, order="C") for key, array in arrays.items()}
    try:
        replace_file(path, lambda fresh: library.numpy.save_file(arrays, fresh, {"partax": json.dumps({"keys": keys})}))
    except library.SafetensorError as error:
        raise OSError(f"`{os.fspath(path)}` cannot be saved: {error}") from error


def load(path: str | os.PathLike[str], like: Any = None, *, separator: str | None = None) -> Any:
    """Load the arrays of a safetensors file, written by `save` or by another tool.

    Example:
      >>> partax.save("model.safetensors", {"weight": jnp.ones(2)})
      >>> partax.load("model.safetensors", {"weight": jax.ShapeDtypeStruct((2,), "float32"), "name": "linear"})
      {'weight': Array([1., 1.], dtype=float32), 'name': 'linear'}

    Args:
      path: The file.
      like: A tree with arrays and `jax.ShapeDtypeStruct`s of the shapes, dtypes, kinds (NumPy or JAX) and shardings to
        return. Default: None, for a dict of all arrays in the file, by path.
      separator: The separator in the paths of the file. Same as in `flat_partition`. Default: None.

    Returns:
      A tree like `like`, or the dict.

    Raises:
      ValueError: The file is not a safetensors file, or does not fit `like`; the message lists the differences.
      OSError, TypeError, ImportError: Same as in `save`.

    See Also: The guide "Save and load models".
    """
    arrays = _read(_safetensors(path), os.fsdecode(path))
    if like is None:
        return {key: _alike(arrays[key], None) for key in sorted(arrays)}
    wanted, rebuild = _by_path(like, separator, lambda leaf: is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct))
    stored, expected = ({key: array_text(leaf) for key, leaf in group.items()} for group in (arrays, wanted))
    lines: list[str] = []
    for key in (*expected, *sorted(stored.keys() - expected)):
        text, other = stored.get(key, "nothing"), expected.get(key, "nothing")
        lines += [f"  `{printable(key)}`: found {text}, expected {other}"] * (text != other)
    if lines:
        lines[100:] = [f"  ... and {len(lines) - 100} more"] * (len(lines) > 100)
        raise ValueError("\n".join([f"`{os.fspath(path)}` does not fit `like`:", *lines]))
    return rebuild({key: _alike(arrays[key], leaf) for key, leaf in wanted.items()})


def _safetensors(path: Any) -> Any:
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"`path`: found a `{type(path).__name__}`, expected a file: save(path, tree), load(path, like)")
    try:
        return __import__("safetensors.numpy")
    except ImportError as error:
        raise ImportError('`save` and `load` need safetensors: pip install "partax[io]"', name="safetensors") from error


def _by_path(tree: Any, separator: str | None, is_saved: Callable[[Any], bool]) -> tuple[dict[str, Any], Any]:
    is_flat = type(tree) is dict and all(isinstance(key, str) for key in tree)
    if is_flat and jax.tree_util.all_leaves(value for value in tree.values() if value is not None):
        return {key: leaf for key, leaf in tree.items() if is_saved(leaf)}, lambda leaves: {**tree, **leaves}
    spec, leaves, rest = flat_partition(tree, is_saved, separator=separator)
    return leaves, lambda loaded: flat_combine(spec, loaded, rest)


def _advice(leaf: Any) -> str:
    """The remedy for a leaf that has or describes arrays and cannot be stored, else empty."""
    if isinstance(leaf, np.ma.MaskedArray) or not is_array(leaf):
        attributes = jax.tree.leaves(getattr(leaf, "__dict__", None))  # of an `nnx.Module` with pytree=False, say
        describes = isinstance(leaf, jax.ShapeDtypeStruct) or hasattr(type(leaf), "__array__")
        return "save the arrays that it has or describes" if describes or any(map(is_array, attributes)) else ""
    if isinstance(leaf, Tracer):
        return "save outside of functions that jax transforms"
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        return "save it before it is deleted or donated"
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return "gather it from all processes, by `jax.experimental.multihost_utils.process_allgather`"
    if is_key(leaf):
        return "" if isinstance(jax.random.key_impl(leaf), str) else "save its `jax.random.key_data`"
    return "" if leaf.dtype.name in _DTYPES.split() else f"cast it to one of these: {' '.join(_DTYPES.split())}"


def _read(library: Any, name: str) -> dict[str, Any]:
    """The arrays of a file: NumPy arrays and typed random keys. safetensors' own reader has no float8."""
    codes = {library.TensorSpec(dtype=name, shape=(0,), data_ptr=0, data_len=0).dtype: name for name in _DTYPES.split()}
    try:
        with open(name, "rb") as file, library.safe_open(name, "numpy", backend="pread") as header:
            own = json.loads((header.metadata() or {}).get("partax", '{"keys": {}}'))
            arrays: dict[str, Any] = {}
            for key, tensor in library.deserialize(file.read()):
                arrays[key] = np.frombuffer(tensor["data"], np.dtype(codes[tensor["dtype"]])).reshape(tensor["shape"])
        for key, implementation in own["keys"].items():
            arrays[key] = jax.random.wrap_key_data(arrays[key], impl=implementation)
    except (library.SafetensorError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"`{name}` cannot be loaded: found {error!r}, expected a safetensors file") from error
    return arrays


def _alike(array: Any, leaf: Any) -> Any:
    """The array as an array of the kind of `leaf`: of JAX if that is None and JAX has the dtype."""
    if isinstance(leaf, (np.generic, np.ndarray)):
        return array[()] if isinstance(leaf, np.generic) else array.astype(leaf.dtype, copy=False)
    if leaf is None and not is_key(array) and jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        return array
    with jax.enable_x64(True):  # keeps 64-bit values
        return jax.device_put(array, getattr(leaf, "sharding", None) if getattr(leaf, "committed", True) else None)
