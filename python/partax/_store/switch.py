"""The directory or bucket in which programs are stored, if any."""

import contextlib
import os
import warnings
from typing import Literal

from partax._jit.observers import observers
from partax._pytree.short_text import short_text
from partax._store.ahead import ahead_of
from partax._store.folder import Folder

_MOST = 2 << 30  # bytes
_REFUSALS = (ImportError, OSError, RuntimeError, ValueError)  # of a directory or an address, or as the process ends

_active: Folder | None = None  # in which all programs are stored
_folders: dict[str, Folder | None] = {}  # by option


def folder_of(store: str | Literal[False] | None) -> Folder | None:
    """Return where programs of a wrapper with this option are stored now, or None if they are not."""
    if store is None or (_active is not None and _active.address == store):
        return _active
    if store is False:
        return None
    if store not in _folders:
        try:
            folder = folder_at(store)
            folder.prepare()
            folder.ahead = ahead_of(folder)
            _folders[store] = folder
        except _REFUSALS as error:
            _folders[store] = None
            warnings.warn(f"partax.store: nothing is stored: {error}", RuntimeWarning, stacklevel=2)
    return _folders[store]


def folder_at(path: str | os.PathLike[str], max_bytes: int = _MOST, key: str | bytes | None = None) -> Folder:
    """The directory, or the one through which a bucket is read; without a key, with that of the environment."""
    if key is not None and (not isinstance(key, (str, bytes)) or not key):
        raise TypeError(f"found a key that is empty or a `{type(key).__name__}`, expected a string or bytes")
    key = key or os.environ.get("PARTAX_STORE_KEY") or None
    secret = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    if "://" not in str(path):
        return Folder(path, max_bytes, secret)
    from partax._store.bucket import Bucket

    return Bucket(str(path), max_bytes, secret)


def store(
    path: str | os.PathLike[str] | None, *, max_bytes: int = _MOST, key: str | bytes | None = None
) -> contextlib.ExitStack:
    """Store compiled programs, so that another process neither traces, lowers nor compiles them again.

    Example:
      >>> step = partax.filter_jit(lambda x: x * 2)
      >>> with partax.store("programs"):
      ...     step(jnp.ones(3))
      Array([2., 2., 2.], dtype=float32)

    From here on a call that would trace looks into the directory first. It loads a program only if everything is equal
    that the program depends on: arguments, code, libraries, jax and the machine. What cannot be proved to be the same
    in another process is not stored; `partax.explain` names it.

    Args:
      path: The directory, or the address of a bucket (the extra `cloud`); None stores nothing from here on. Without a
        key, whoever can write to it can make this process run anything.
      max_bytes: The maximum size of its files on this machine; the least recently used go first. Default: 2 GiB.
      key: A secret. Programs are signed with it, and others are not loaded. Default: the variable `PARTAX_STORE_KEY`.

    Returns:
      A context manager: when it is left, the previous directory is used again.

    Raises:
      ImportError: What reads the address is not installed.
      OSError: The directory cannot be created, or others may write to it and no key is set.
      TypeError: `path` is not a path, or `key` is empty or neither a string nor bytes.
      ValueError: `max_bytes` is not positive, or the address is of an unknown kind.

    See Also: The guides "Fast restarts" and "Sharing programs".
    """
    if not isinstance(max_bytes, (int, float)) or not max_bytes > 0:
        raise ValueError(f"found max_bytes={short_text(max_bytes)}, expected a positive number of bytes")
    if not isinstance(path, (str, os.PathLike, type(None))):
        raise TypeError(f"found a `{type(path).__name__}`, expected a folder, or None to store nothing")
    folder = None if path is None else folder_at(path, max_bytes, key)
    if folder is not None:
        folder.prepare()
    restore = contextlib.ExitStack()
    restore.callback(_set, _active)
    _set(folder)
    return restore


def _set(folder: Folder | None) -> None:
    global _active
    if _active is not None:
        _active.ahead.end()
    if folder is not None:
        folder.ahead = ahead_of(folder)
    _active = folder
    observers.stores_all = folder is not None


def store_or_warn(path: str | os.PathLike[str]) -> None:
    """Store in a directory or bucket that no code names; warn if that is not possible."""
    try:
        store(path)
    except _REFUSALS as error:
        warnings.warn(f"partax.store: nothing is stored: {error}", RuntimeWarning, stacklevel=2)
