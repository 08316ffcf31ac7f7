"""Changes of nnx objects by a function of plain filter_jit, which the caller's objects would not see."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from partax import _core
from partax._jit.options import value_names

_STATE = "_pytree__state"  # the trace that an object was made in


_Seen = tuple[str, Any, dict[str, Any]]
"""An nnx object that a traced function was given: where, and what it consisted of."""


def watch(values: tuple[Any, ...]) -> list[_Seen] | None:
    """Remembers the nnx objects that a traced function is given, for `refuse_lost`. Called by the native wrapper."""
    names = value_names(_core.call_shape()) if hasattr(_nnx(), "Pytree") else ()
    return watch_named(dict(zip(names, values, strict=True))) if names else None


def watch_named(values: Mapping[str, Any]) -> list[_Seen] | None:
    nnx = _nnx()
    if not hasattr(nnx, "Pytree"):
        return None
    return [(path, it, _contents(it)) for name, value in values.items() for path, it in _objects(nnx, value, name)]


def _nnx() -> Any:
    return sys.modules.get("flax.nnx")


def refuse_lost(watched: list[_Seen] | None, result: Any) -> None:
    """Raises if the function has changed an nnx object and does not return the change. Called by the native wrapper."""
    if not watched:
        return
    returned = set(map(id, jax.tree.leaves(result)))
    returned |= {id(it) for _, it in _objects(_nnx(), result, "the result")}
    for where, it, is_value in changes(watched):
        if id(it) in returned or (is_value and {id(leaf) for leaf in jax.tree.leaves(it._raw_value)} <= returned):
            continue
        raise ValueError(
            f"`{where}`: the function has changed this of an nnx object, and the caller's would stay as it is; use "
            "`partax.nnx.jit`, which changes the caller's objects in place, or return the object"
        )


def changes(watched: list[_Seen]) -> Iterator[tuple[str, Any, bool]]:
    """Where nnx objects consist of something else since then, of which, and whether it is what a Variable holds."""
    for path, it, before in watched:
        now = _contents(it)
        for name in (*now, *(before.keys() - now.keys())):
            if name in before and name in now:
                old, new = before[name], now[name]
                if old is new or (_core.node_kind(new) == "static_leaf" and _core.static_equal(old, new)):
                    continue
            yield path if name == "_raw_value" else f"{path}.{name}", it, name == "_raw_value"


def _contents(it: Any) -> dict[str, Any]:
    if hasattr(type(it), "_raw_value"):
        return {"_raw_value": it._raw_value, **it._var_metadata}
    return {name: value for name, value in vars(it).items() if name not in (_STATE, "_pytree__nodes")}


def _objects(nnx: Any, value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The nnx objects in a tree, but not those in a State, which is what a function may change."""

    def is_leaf(it: Any) -> bool:
        return issubclass(type(it), (nnx.Variable, nnx.Pytree, nnx.State))

    def is_object(it: Any) -> bool:
        return is_leaf(it) and not issubclass(type(it), nnx.State)

    for inner, leaf in _core.flat_partition(value, (is_object,), None, False, is_leaf, path)[1].items():
        here = path + inner
        yield here, leaf
        if issubclass(type(leaf), nnx.Pytree):
            is_list = issubclass(type(leaf), nnx.List)
            for name in sorted(vars(leaf).keys() - {_STATE}, key=str):
                yield from _objects(nnx, vars(leaf)[name], f"{here}[{name}]" if is_list else f"{here}.{name}")
