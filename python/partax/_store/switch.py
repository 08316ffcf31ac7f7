"""The directory in which programs are stored, if any."""

import contextlib
import os
import warnings
from typing import Literal

from partax._jit.observers import observers
from partax._pytree.short_text import short_text
from partax._store.ahead import Ahead
from partax._store.folder import Folder

_MOST = 2 << 30  # bytes

_active: Folder | None = None  # in which all programs are stored
_folders: dict[str, Folder | None] = {}  # by option


def folder_of(store: str | Literal[False] | None) -> Folder | None:
    """Return where programs of a wrapper with this option are stored now, or None if they are not."""
    if store is None or (_active is not None and os.path.abspath(_active.path) == store):
        return _active
    if store is False:
        return None
    if store not in _folders:
        folder = Folder(store, _MOST)
        try:
            folder.prepare()
            _folders[store] = folder
        except OSError as error:
            _folders[store] = None
            folder.tell(f"nothing is stored: {error}")
    return _folders[store]


def store(path: str | os.PathLike[str] | None, *, max_bytes: int = _MOST) -> contextlib.ExitStack:
    """Store compiled programs in a directory, so that another process neither traces, lowers nor compiles them again.

    Example:
      >>> step = partax.filter_jit(lambda x: x * 2)
      >>> with partax.store("programs"):
      ...     step(jnp.ones(3))
      Array([2., 2., 2.], dtype=float32)

    From here on a call that would trace looks into the directory first. It loads a program only if everything is equal
    that the program depends on: arguments, code, libraries, jax and the machine. What cannot be proved to be the same
    in another process is not stored; `partax.explain` names it.

    Args:
      path: The directory; None stores nothing from here on. Whoever can write to it can make this process run anything.
      max_bytes: The maximum size of its files; the least recently used go first. Default: 2 GiB.

    Returns:
      A context manager: when it is left, the previous directory is used again.

    Raises:
      OSError: The directory cannot be created, or others may write to it.
      TypeError: `path` is not a path.
      ValueError: `max_bytes` is not positive.

    See Also: The guide "Persistent program cache".
    """
    if not isinstance(max_bytes, (int, float)) or not max_bytes > 0:
        raise ValueError(f"found max_bytes={short_text(max_bytes)}, expected a positive number of bytes")
    if not isinstance(path, (str, os.PathLike, type(None))):
        raise TypeError(f"found a `{type(path).__name__}`, expected a folder, or None to store nothing")
    folder = None if path is None else Folder(path, max_bytes)
    if folder is not None:
        folder.prepare()
    restore = contextlib.ExitStack()
    restore.callback(_set, _active)
    _set(folder)
    return restore


def _set(folder: Folder | None) -> None:
    global _active
    if _active is not None and _active.ahead is not None:
        _active.ahead.end()
    if folder is not None:
        folder.ahead = Ahead(folder)
    _active = folder
    observers.stores_all = folder is not None


def store_or_warn(path: str | os.PathLike[str]) -> None:
    """Store in a directory that no code names; warn if that is not possible."""
    try:
        store(path)
    except OSError as error:
        warnings.warn(f"partax.store: nothing is stored: {error}", RuntimeWarning, stacklevel=2)
