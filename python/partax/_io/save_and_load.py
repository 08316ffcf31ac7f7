"""Saving arrays by path in safetensors files, and loading them."""

import dataclasses
import os
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from partax._io import file_format
from partax._pytree.filters import is_array, nearest_paths
from partax._pytree.flat_partition import flat_combine, flat_partition
from partax._pytree.partition import PyTree
from partax._pytree.short_text import array_text, printable, record_text

_Path = str | os.PathLike[str]

_SHOWN = 100
_SHOWN_NEAREST = 10


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """One array that a file and the tree to load into do not have alike.

    Example:
      >>> partax.save("model.safetensors", {"weight": jnp.ones(2)})
      >>> tree, mismatches = partax.load("model.safetensors", {"weight": jnp.ones(3)}, strict=False)
      >>> mismatches
      (Mismatch(path='weight', found='float32[2]', expected='float32[3]'),)

    Attributes:
      path: the array's path.
      found: dtype and shape in the file, as in `float32[3,4]`; None if the file does not have the array.
      expected: dtype and shape in the tree; None if the tree does not have the array.
    """

    path: str
    found: str | None
    expected: str | None

    __repr__ = record_text

    def __str__(self) -> str:
        return f"`{printable(self.path)}`: found {self.found or 'nothing'}, expected {self.expected or 'nothing'}"


Mismatch.__module__ = "partax"  # where users find it, and pickles too


def save(path: _Path, tree_or_dict: PyTree, *, separator: str | None = None) -> None:
    """Saves the arrays of a tree in a safetensors file, each under its path.

    Example:
      >>> model = {"weight": jnp.ones(2), "name": "linear"}
      >>> partax.save("model.safetensors", model)
      >>> partax.load("model.safetensors", like=model)
      {'weight': Array([1., 1.], dtype=float32), 'name': 'linear'}

    The file appears as a whole or not at all: whatever happens while it is written, an older file of this name stays
    as it was. Only arrays are stored, bit by bit; nothing is pickled. What else is in the tree comes from the `like` of
    `load`.

    Args:
      path: the file. An existing one is replaced and keeps its permissions; a symbolic link stays, and the file that
        it points to is replaced.
      tree_or_dict: any pytree. Its JAX arrays, typed PRNG keys, NumPy arrays and NumPy scalars (what `is_array` takes)
        are stored under the paths of `flat_partition(tree_or_dict, is_array, separator=separator)`. A dict whose keys
        are all str and whose values are all leaves or None is stored under its own keys.
      separator: how paths are written, as of `flat_partition`.

    Returns:
      Nothing; the file is on the disk.

    Raises:
      ImportError: safetensors is not installed.
      TypeError: an array has a dtype that safetensors cannot store (such as int4, complex128 or object), is masked or
        is traced; the message has the path and what to do.
      ValueError: an array has been donated or deleted, or is spread over the devices of other processes; or a path is
        one that safetensors cannot store.
      OSError: the file cannot be written (the disk is full, say). The older file is whole.

    The bytes go to a directory `.<name>.<random>.tmp` beside the file, and are renamed when they are on the disk. A
    saver that was killed leaves this directory behind; it is never read and may be deleted. The format is that of
    https://github.com/huggingface/safetensors; the metadata entry `partax` is JSON with the version of its own format
    and the implementations of PRNG keys. A float4 array is stored as two values in a byte, which needs an even last
    dimension.

    A save of no array at all warns. On a terminal with rich installed, a save that takes longer than a second shows how
    far it is.
    """
    file_format.safetensors_library()  # before any work
    name = _file_name(path, "save(path, tree)")
    leaves, _ = _by_path(tree_or_dict, separator, is_array)
    if not leaves:
        warnings.warn(f"`{name}` has no array, as there is none in what is saved", UserWarning, stacklevel=2)
    for key, leaf in leaves.items():
        _check_storable(key, leaf)
    keys = {key: _key_implementation(key, leaf) for key, leaf in leaves.items() if file_format.is_key(leaf)}
    data = {key: jax.random.key_data(leaf) if key in keys else leaf for key, leaf in leaves.items()}
    file_format.write_arrays(name, leaves, jax.device_get(data), keys)


def load(path: _Path, like: PyTree = None, *, separator: str | None = None, strict: bool = True) -> PyTree:
    """Loads the arrays of a safetensors file, of `save` or of another tool.

    Example:
      >>> partax.save("model.safetensors", {"weight": jnp.ones(2)})
      >>> partax.load("model.safetensors")
      {'weight': Array([1., 1.], dtype=float32)}
      >>> like = {"weight": jax.ShapeDtypeStruct((2,), "float32"), "name": "linear"}
      >>> partax.load("model.safetensors", like)
      {'weight': Array([1., 1.], dtype=float32), 'name': 'linear'}

    Args:
      path: the file.
      like: a tree of the structure to return, whose arrays tell the shape, the dtype and the kind of those to load: a
        NumPy array for a NumPy array, a NumPy scalar for a NumPy scalar, a JAX array for a JAX array or a
        `jax.ShapeDtypeStruct`. A JAX array comes onto the sharding of a committed array or of a `ShapeDtypeStruct` that
        has one, else onto the default device. Nothing is cast. The rest of `like` is in the result as it is. None for
        the dictionary of all that the file has.
      separator: how the paths in the file are written, as of `flat_partition`.
      strict: whether arrays that do not fit are an error.

    Returns:
      With `like`, a tree like it. Arrays are never weakly typed. Without, a dict from path to array, ordered by path,
      of JAX arrays; but of NumPy arrays where JAX would change the dtype (float64 while `jax_enable_x64` is off).
      With `strict=False`, `(tree, mismatches)`: in the tree what does not fit is as in `like`, and `mismatches` is a
      tuple of `Mismatch`, one for each array that is missing, unexpected, or of another shape or dtype.

    Raises:
      ImportError: safetensors is not installed.
      ValueError: the arrays of the file and of `like` differ; the message lists each path with what was found and
        expected. Or the file is cut off, corrupt, no safetensors file, or of a newer partax.
      TypeError: `like` has a traced array.
      OSError: the file cannot be read.

    The file is read into memory, not mapped: it may be replaced or cut off at any time, before and after. As `save`, it
    shows on a terminal how far it is.
    """
    file_format.safetensors_library()  # before any work
    name = _file_name(path, "load(path, like)")
    wanted, rebuild = _by_path(like, separator, _tells_array)
    for key, leaf in wanted.items():
        _check_concrete(key, leaf, "load")
    arrays = file_format.read_arrays(name)
    if like is None:
        for key, array in arrays.items():
            if file_format.is_key(array) or jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype:
                arrays[key] = _placed(array, None)  # else jax does not have the dtype
        everything = dict(sorted(arrays.items()))
        return everything if strict else (everything, ())

    mismatches = _compare(arrays, wanted)
    if mismatches and strict:
        raise ValueError("\n".join([f"`{name}` does not fit `like`:", *_lines(mismatches, arrays, wanted)]))
    misfits = {mismatch.path for mismatch in mismatches}
    tree = rebuild({key: leaf if key in misfits else _alike(arrays.pop(key), leaf) for key, leaf in wanted.items()})
    return tree if strict else (tree, mismatches)


def _file_name(path: Any, usage: str) -> str:
    if isinstance(path, (str, bytes, os.PathLike)):
        return os.fsdecode(path)
    raise TypeError(f"`path`: found a `{type(path).__name__}`, expected the name of a file: {usage}")


def _by_path(
    tree: PyTree, separator: str | None, predicate: Callable[[Any], bool]
) -> tuple[dict[str, Any], Callable[[dict[str, Any]], PyTree]]:
    """The leaves that the predicate takes, and what puts others into their places."""
    if type(tree) is dict and all(isinstance(key, str) for key in tree):
        values: dict[str, Any] = tree
        if jax.tree_util.all_leaves(value for value in values.values() if value is not None):
            return {key: leaf for key, leaf in values.items() if predicate(leaf)}, lambda leaves: {**values, **leaves}
    spec, taken, rest = flat_partition(tree, predicate, separator=separator)
    return taken, lambda leaves: flat_combine(spec, leaves, rest)


def _tells_array(leaf: Any) -> bool:
    return is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


# --- saving


def _check_concrete(key: str, leaf: Any, doing: str) -> None:
    if isinstance(leaf, Tracer):
        raise TypeError(
            f"`{key}`: found a traced {array_text(leaf)}, expected an array with values; {doing} outside of functions "
            "that jax transforms, or from `jax.experimental.io_callback`"
        )


def _key_implementation(key: str, leaf: Any) -> str:
    implementation = jax.random.key_impl(leaf)
    if not isinstance(implementation, str):
        raise TypeError(
            f"`{key}`: found a PRNG key of an implementation without a name, {implementation!r}, expected a registered "
            "one; save its `jax.random.key_data`"
        )
    return implementation


def _check_storable(key: str, leaf: Any) -> None:
    _check_concrete(key, leaf, "save")
    if key == file_format.RESERVED_NAME:
        raise ValueError(f"`{key}`: found an array of this name, expected another one: safetensors reserves it")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"`{key!a}`: found a lone surrogate in the path, expected Unicode text") from error
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(f"`{key}`: found a masked array, expected a plain one; save its `data` and its `mask`")
    if isinstance(leaf, jax.Array):
        if leaf.is_deleted():
            raise ValueError(f"`{key}`: found a deleted {array_text(leaf)}, expected one that was not donated")
        if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
            raise ValueError(
                f"`{key}`: found a {array_text(leaf)} on devices of several processes, expected all of it here; gather "
                "it first, with `jax.experimental.multihost_utils.process_allgather`"
            )
        if file_format.is_key(leaf):
            return
    if leaf.dtype.name not in file_format.STORED_DTYPES:
        raise TypeError(
            f"`{key}`: found {array_text(leaf)}, expected a dtype that safetensors stores; {_way_out(leaf.dtype.name)}"
        )
    if leaf.dtype.name == file_format.FLOAT4 and (leaf.ndim == 0 or leaf.shape[-1] % 2):
        raise TypeError(
            f"`{key}`: found {array_text(leaf)}, expected an even last dimension, as safetensors stores two values in "
            f"a byte; {_way_out(file_format.FLOAT4)}"
        )


def _way_out(dtype: str) -> str:
    if dtype.startswith(("int", "uint")):
        return f"cast it to {dtype.rstrip('0123456789')}8, which holds all its values"
    if dtype.startswith(("float4", "float6", "float8")):
        return "cast it to bfloat16, which holds all its values"
    if dtype == "complex128":
        return "save its real and its imaginary part, or cast it to complex64"
    return "cast it to one of these: " + ", ".join(sorted(file_format.STORED_DTYPES))


# --- loading


def _compare(arrays: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Mismatch, ...]:
    """What differs, in the order of the tree; what is unexpected comes last."""
    pairs = [(key, arrays.get(key), leaf) for key, leaf in wanted.items()]
    pairs += [(key, arrays[key], None) for key in sorted(arrays) if key not in wanted]
    texts = ((key, *(None if it is None else array_text(it) for it in pair)) for key, *pair in pairs)
    return tuple(Mismatch(key, found, expected) for key, found, expected in texts if found != expected)


def _lines(mismatches: tuple[Mismatch, ...], arrays: Collection[str], wanted: Collection[str]) -> list[str]:
    missing = [mismatch.path for mismatch in mismatches if mismatch.found is None]
    unexpected = [mismatch.path for mismatch in mismatches if mismatch.expected is None]
    lines: list[str] = []
    for i, mismatch in enumerate(mismatches[:_SHOWN]):
        is_missing, is_one_sided = mismatch.found is None, None in (mismatch.found, mismatch.expected)
        where, others = ("the file", unexpected or arrays) if is_missing else ("`like`", missing or wanted)
        near = nearest_paths(mismatch.path, list(others))[:1] if is_one_sided and i < _SHOWN_NEAREST else []
        told = "".join(f" (the nearest path in {where} is `{printable(path)}`)" for path in near)
        lines.append(f"  {mismatch}{told}")
    if len(mismatches) > _SHOWN:
        lines.append(f"  ... and {len(mismatches) - _SHOWN} more; `strict=False` returns them all")
    return lines


def _alike(array: Any, leaf: Any) -> Any:
    """The array as what `leaf` is."""
    if isinstance(leaf, np.generic):
        return array[()]
    if isinstance(leaf, np.ndarray):
        return array if leaf.dtype.byteorder != ">" else array.byteswap().view(leaf.dtype)
    return _placed(array, None if isinstance(leaf, jax.Array) and not leaf.committed else leaf.sharding)


def _placed(array: Any, sharding: Any) -> Any:
    with jax.enable_x64(True):  # else 64-bit values would be cut
        return jax.device_put(array, sharding)
