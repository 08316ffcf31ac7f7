"""The result of a trace without its arrays, as bytes that another process rebuilds."""

import io
import operator
import pickle
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.core import Tracer

from partax import _core
from partax._families.comparison import equal_by, is_enum
from partax._families.installed import is_installed
from partax._functions.classes import is_constant
from partax._functions.pure import is_pure, module_of
from partax._jax.nodes import is_tree_node
from partax._store import UnstoredError


def _statics_of(call: _core.Call) -> list[Any]:
    """The static values of a call, in the order of its key; None where one is absent."""
    _, statics, _ = call.describe()[0]
    return [entry[0] if entry else None for entry in statics]


def stored_result(call: _core.Call, result: Any, inputs: tuple[Any, ...], node: _core.OutputNode) -> bytes | None:
    """The result of a trace as bytes; None if it cannot be stored. The inputs are the arrays of the trace."""
    data = io.BytesIO()
    try:
        values = {"static": _statics_of(call), "out": _core._flatten_output(node)[0], "in": inputs}
        Pickler(data, values).dump(result)
    except MemoryError:
        raise
    except Exception:  # of any class of the user's
        return None
    return data.getvalue()


def rebuilt(call: _core.Call, data: bytes, inputs: list[Any], outputs: list[Any]) -> Any:
    """The result, with these arrays and the static values of the call in it. Without data it is one array."""
    if not data:
        return outputs[0]
    return Unpickler(data, {"out": outputs, "in": inputs, "static": _statics_of(call)}).load()


_PLAIN_TYPES = {
    *(type(None), bool, int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset, range, slice),
    *(jax.tree_util.PyTreeDef, type(jax.tree_util.default_registry)),
}

_HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")


class Pickler(pickle.Pickler):
    """Writes arrays and the call's own values by number, and pure functions by name."""

    def __init__(self, file: io.BytesIO, values: Mapping[str, Sequence[Any]]) -> None:
        super().__init__(file, protocol=5)
        self._values = values  # kept alive for their ids
        self._ids = {id(value): f"{kind} {i}" for kind in values for i, value in enumerate(values[kind])}
        self._ids.pop(id(None), None)

    def persistent_id(self, obj: Any) -> str | None:
        if id(obj) in self._ids:
            return self._ids[id(obj)]
        if isinstance(obj, Tracer):
            raise UnstoredError
        if callable(obj) and is_pure(obj):
            return f"name {obj.__module__} {getattr(obj, '__qualname__', None) or obj.__name__}"
        return None

    def reducer_override(self, obj: Any) -> Any:
        cls = type(obj)
        if cls in _PLAIN_TYPES or isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType)):
            return NotImplemented  # the latter by name
        if not all(is_installed(module_of(getattr(cls, name, None))) for name in _HOOKS):
            raise UnstoredError
        if equal_by(cls) is not None:
            content: Any = obj
            return cls, (dict(content),)  # without a hash that it may have kept, which is of this process
        if is_tree_node(cls) or is_enum(cls) or is_constant(cls):
            return NotImplemented
        raise UnstoredError


class Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, values: dict[str, list[Any]]) -> None:
        super().__init__(io.BytesIO(data))
        self._values = values

    def persistent_load(self, pid: str) -> Any:
        kind, which, *name = pid.split(" ")
        if kind != "name":
            return self._values[kind][int(which)]
        return operator.attrgetter(name[0])(sys.modules[which])
