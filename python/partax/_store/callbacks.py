"""The Python functions that a stored program calls when it runs, as bytes: their code, and what that holds."""

import functools
import io
import marshal
import pickle
import sys
import types
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray

from partax._functions.pure import is_pure, module_of
from partax._store import UnstoredError
from partax._store.content import content_of
from partax._store.results import Pickler, Unpickler

_VALUES = type(None), bool, int, float, complex, str, bytes


class Callback:
    """Calls a function that is rebuilt once its program is known to be the right one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._function: Any = None

    def rebuild(self) -> bool:
        """Also return whether it raises errors of Equinox. Raises any exception if another process has no such one."""
        self._function = pickle.loads(self._data)  # covered by the digest of the record
        return b"_EquinoxRuntimeError" in self._data

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


def stored_callbacks(functions: Iterable[Any]) -> tuple[bytes, ...]:
    """The functions as bytes; none if one holds or reads what another process has not."""
    files = [(function, io.BytesIO()) for function in functions]
    try:
        for function, data in files:
            _Pickler(data, protocol=5).dump(function)
    except MemoryError:
        raise
    except Exception:  # of any class of the user's
        return ()
    return tuple([data.getvalue() for _, data in files])


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> None:
        if type(obj) in (set, bytearray):  # an argument, which may change; lists and dictionaries are of a library
            raise UnstoredError

    def reducer_override(self, obj: Any) -> Any:
        cls = type(obj)
        if isinstance(obj, ShapedArray):  # the type of a result
            return jax.ShapeDtypeStruct, (obj.shape, np.dtype(obj.dtype))
        if cls is jax.tree_util.PyTreeDef:
            data = io.BytesIO()
            Pickler(data, {}).dump(obj)
            return _rebuilt_tree, (data.getvalue(),)
        if cls is types.FunctionType and not is_pure(obj):
            return _reduced(obj)
        if cls is functools.partial:
            if not _is_of_library(obj.func):
                _refuse_objects(*obj.args, *obj.keywords.values())
        elif not (isinstance(obj, (type, np.dtype, np.generic)) or _is_of_library(cls) or is_pure(obj)):
            raise UnstoredError
        return NotImplemented


def _is_of_library(value: Any) -> bool:
    """Whether jax or Equinox has made it around a user's function: it holds no object of the user's that may change."""
    makers = jax.pure_callback, jax.debug.print, getattr(sys.modules.get("equinox"), "error_if", None)
    return module_of(value) in [maker.__globals__["__name__"] for maker in makers if maker is not None]


def _refuse_objects(*values: Any) -> None:
    if not all(type(value) in _VALUES for value in values):
        raise UnstoredError


def _reduced(function: types.FunctionType) -> Any:
    module, defaults, keywords = function.__module__, function.__defaults__, function.__kwdefaults__
    cells, digest = tuple([cell.cell_contents for cell in function.__closure__ or ()]), ""
    if not _is_of_library(function):
        _refuse_objects(*cells, *(defaults or ()), *(keywords or {}).values())
        digest = content_of([("", function)], ())[0]
    if function.__globals__ is not vars(sys.modules[module]) or function.__dict__:
        raise UnstoredError
    return _rebuilt, (module, function.__name__, marshal.dumps(function.__code__), defaults, keywords, cells, digest)


def _rebuilt(module: str, name: str, code: bytes, defaults: Any, keywords: Any, cells: Any, digest: str) -> Any:
    cells = tuple(map(types.CellType, cells))
    function = types.FunctionType(marshal.loads(code), vars(sys.modules[module]), name, defaults, cells)
    function.__kwdefaults__ = keywords
    if digest and content_of([("", function)], ())[0] != digest:
        raise UnstoredError("a callback reads what has changed")
    return function


def _rebuilt_tree(data: bytes) -> Any:
    return Unpickler(data, {}).load()
