"""Makes the treedef of a node from that of another one, which it pickles without the aux data."""

import io
import pickle
import weakref
from typing import Any

# For a class and a number of children, the pickled treedef, in which the class, the aux data and what else is no part
# of it stand by name: so it keeps nothing alive.
_forms: weakref.WeakKeyDictionary[type, dict[int, bytes]] = weakref.WeakKeyDictionary()
_parts: dict[str, Any] = {}  # by type; jax's registry, which is one


def keep_form(treedef: Any) -> None:
    """Notes what nodes of this class and number of children are like."""
    cls, aux = treedef.node_data()
    forms = _forms.setdefault(cls, {})
    if treedef.num_leaves in forms:
        return

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            if obj is None or isinstance(obj, int):
                return None
            if obj is aux or obj is cls:
                return "aux" if obj is aux else "class"
            kind = type(obj)
            if kind.__module__.startswith("jaxlib") and obj is not treedef:
                _parts[kind.__qualname__] = obj
                return kind.__qualname__
            return None

    data = io.BytesIO()
    Pickler(data, pickle.HIGHEST_PROTOCOL).dump(treedef)
    forms[treedef.num_leaves] = data.getvalue()


def from_form(cls: type, aux: Any, num_children: int) -> Any:
    """The treedef of such a node with other aux data; one like it must have been kept."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            return _parts[pid] if pid in _parts else {"aux": aux, "class": cls}[pid]

    return Unpickler(io.BytesIO(_forms[cls][num_children])).load()
