"""Tells the native stages how to read each type: as which leaf, or as which family of nodes."""

import collections
import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from partax import _core
from partax._filters import Filter
from partax._jax_private import concrete_array_type, jit_parts, ref_types, registered_nodes
from partax._proofs import (
    Traits,
    global_names,
    is_installed,
    is_of_library,
    reads_outside,
    traits,
    written_cells,
)

# (kind, names of the children, names of the static fields, traits of the type)
Description = tuple[str, tuple[str, ...], tuple[str, ...], Traits]
# The same of a node that C++ reads by its fields.
_Fields = tuple[str, tuple[str, ...], tuple[str, ...]]

_REGISTRY = jax.tree_util.default_registry
_LEAVES = (
    ("jax_array", (concrete_array_type(), jax.Array)),
    ("numpy_array", np.ndarray),
    ("numpy_scalar", np.generic),
    ("ref", ref_types()),
    ("abstract", jax.ShapeDtypeStruct),
    ("float", (float, complex)),
    ("int", int),
)
# Equinox keeps these on modules that wrap a function.
_WRAPPER_NAMES = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


def _equinox() -> Any:
    """Equinox, if the user has imported it: only then can there be modules of it."""
    return sys.modules.get("equinox")


def _is_module(cls: type) -> bool:
    module = getattr(_equinox(), "Module", None)
    return module is not None and issubclass(cls, module)


def _plain_instance_dict(obj: Any, names: tuple[str, ...]) -> bool:
    """Whether the fields live in the instance dictionary, where the native stages read them."""
    cls = type(obj)
    if not isinstance(getattr(obj, "__dict__", None), dict):
        return False
    for name in names:
        on_class = inspect.getattr_static(cls, name, None)
        if hasattr(type(on_class), "__set__"):
            return False
    return True


def _describe_module(obj: Any) -> _Fields | None:
    """An Equinox module, if its registered flatten function does what the native one does."""
    cls = type(obj)
    fields = dataclasses.fields(cls)
    children = tuple(f.name for f in fields if not f.metadata.get("static", False))
    statics = tuple(f.name for f in fields if f.metadata.get("static", False))
    if not _plain_instance_dict(obj, children + statics):
        return None
    _core.configure(missing=_missing(), wrapper_names=_WRAPPER_NAMES)
    values = obj.__dict__
    missing = _missing()
    plain = len(values) == len(fields)
    wrapper = missing if plain else tuple(values.get(name, missing) for name in _WRAPPER_NAMES)
    found, aux = _REGISTRY.flatten_one_level(obj)
    expected = [values.get(name, missing) for name in children]
    expected_aux = [wrapper, *(values.get(name, missing) for name in statics)]
    if not _identical(found, expected) or not isinstance(aux, tuple) or len(aux) != len(expected_aux):
        return None
    same_wrapper = aux[0] is missing if plain else _identical(aux[0], expected_aux[0])
    if not same_wrapper or not _identical(aux[1:], expected_aux[1:]):
        return None
    return ("module", children, statics)


def _missing() -> Any:
    """Equinox's marker of an absent field, as its flatten functions give it."""
    from equinox._module import _flatten

    return _flatten.MISSING


def _identical(left: Any, right: Any) -> bool:
    left, right = list(left), list(right)
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def _describe_dataclass(obj: Any) -> _Fields | None:
    """A class of `jax.tree_util.register_dataclass`, if reading its fields gives what jax gives."""
    cls = type(obj)
    if not dataclasses.is_dataclass(cls):
        return None
    try:
        pairs, aux = _REGISTRY.flatten_one_level_with_keys(obj)
    except Exception:
        return None
    children = tuple(key.name for key, _ in pairs if isinstance(key, jax.tree_util.GetAttrKey))
    if len(children) != len(pairs) or not isinstance(aux, tuple):
        return None
    statics = tuple(f.name for f in dataclasses.fields(cls) if f.init and f.name not in children)
    if not _plain_instance_dict(obj, children + statics) or not _is_native_dataclass(cls):
        return None
    values = obj.__dict__
    if any(name not in values for name in children + statics):
        return None
    if not _identical([value for _, value in pairs], [values[name] for name in children]):
        return None
    if not _identical(aux, [values[name] for name in statics]):
        return None
    return ("dataclass", children, statics)


def _is_native_dataclass(cls: type) -> bool:
    """Whether jax itself rebuilds the class by calling it with its fields, as `register_dataclass` arranges."""
    registered = registered_nodes()
    entry = None if registered is None else registered.get(cls)
    flatten = getattr(entry, "to_iter", None)
    return "register_dataclass" in getattr(flatten, "__qualname__", "")


def _describe_node(obj: Any) -> _Fields:
    native = _describe_module(obj) if _is_module(type(obj)) else _describe_dataclass(obj)
    return native or ("registered", (), ())


def _leaf_sort(obj: Any, cls: type) -> str:
    # Of the class, since asking an object runs code of its own; only jax decides by tracer.
    if issubclass(cls, Tracer):
        return "tracer"
    for sort, kinds in _LEAVES:
        if issubclass(cls, kinds):
            return sort
    return "jax_array" if cls.__module__.startswith("jax") and isinstance(obj, jax.Array) else "other"


def describe(obj: Any) -> Description:
    """Describes the type of `obj` for the native type table."""
    cls = type(obj)
    return (*_fields(obj, cls), traits(cls, getattr(_equinox(), "Module", None)))


def _fields(obj: Any, cls: type) -> _Fields:
    if cls in (_core.FlatSpec, _core.Static):
        return ("static", (), ())
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and cls not in (registered_nodes() or ()):
        return ("named_tuple", tuple(cls._fields), ())  # type: ignore[attr-defined]
    if _REGISTRY.is_node(cls):
        return _describe_node(obj)
    return (_leaf_sort(obj, cls), (), ())


def _one_level(node: Any) -> Any:
    """The treedef of a node whose children are leaves, by which the node is rebuilt."""
    # Everything but the root, which is asked about first, is a leaf; also the node itself where it is its own child.
    is_root = iter((True,))
    return jax.tree.structure(node, is_leaf=lambda _: not next(is_root, False))


def _treedef_of(cls: type, aux: Any, num_children: int) -> Any:
    """The treedef of a node of `cls` with this aux data, whose children are leaves."""
    leaf = jax.tree.structure(0)
    return jax.tree_util.PyTreeDef.from_node_data_and_children(_REGISTRY, (cls, aux), [leaf] * num_children)


def _simple_key(entry: Any) -> str:
    """An entry of a path without punctuation."""
    return jax.tree_util.keystr((entry,), simple=True)


def _is_inexact(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def _display_name(fun: Any) -> str:
    name = getattr(fun, "__name__", None)
    return name if isinstance(name, str) else type(fun).__name__


_Kinds = inspect.Parameter
_POSITIONAL = (_Kinds.POSITIONAL_ONLY, _Kinds.POSITIONAL_OR_KEYWORD)


def _bare(fun: Any) -> Callable[..., Any] | None:
    """A callable with the parameters by which `fun` is really called, or None where nobody knows them.

    `__wrapped__` and `__signature__` only say what `fun` shows: a wrapper may add, drop, rename and reorder parameters.
    """
    if isinstance(fun, types.FunctionType):
        bare = types.FunctionType(fun.__code__, {}, fun.__name__, fun.__defaults__, fun.__closure__)
        bare.__kwdefaults__ = fun.__kwdefaults__
        return bare
    if isinstance(fun, _core.JitFunction) or _is_called_as_wrapped(fun):
        return _bare(fun.__wrapped__)
    if isinstance(fun, types.MethodType) or _is_bound_method_of_module(fun):
        return _bound(_bare(fun.__func__))
    if isinstance(fun, functools.partial):
        inner = _bare(fun.func) if type(fun).__call__ is functools.partial.__call__ else None
        return None if inner is None else functools.partial(inner, *fun.args, **fun.keywords)
    if isinstance(fun, type):
        plain = type(fun).__call__ is type.__call__ and fun.__new__ is object.__new__
        return _bound(_bare(fun.__init__)) if plain and isinstance(fun.__init__, types.FunctionType) else None
    call = _call_method(fun)
    return None if call is None else _bound(_bare(call))


def _is_called_as_wrapped(fun: Any) -> bool:
    """Whether `fun` is an object of partax that calls what it wraps with the arguments as they are."""
    return getattr(type(fun), "_is_called_as_wrapped", False) is True


def _is_bound_method_of_module(fun: Any) -> bool:
    """Whether `fun` is what Equinox makes of a method that is looked up: a module called as the method is."""
    return _is_module(type(fun)) and type(fun).__name__ == "BoundMethod" and hasattr(fun, "__func__")


def _call_method(obj: Any) -> Any:
    """The function that calling an object calls with the object as its first argument, or None."""
    if isinstance(inspect.getattr_static(type(obj), "__call__", None), (staticmethod, classmethod)):
        return None
    method = getattr(type(obj), "__call__", None)  # noqa: B004 - not whether there is one, but which
    known = isinstance(method, (types.FunctionType, _core.JitFunction)) or _is_called_as_wrapped(method)
    return method if known else None


def _bound(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    return None if function is None else types.MethodType(function, function)


def _parameters(fun: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return None


def _real_and_shown(fun: Any) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """The parameters by which `fun` is called, and those that its signature shows."""
    bare = _bare(fun)
    real = None if bare is None else _parameters(bare)
    if real is None:
        real = [_Kinds("args", _Kinds.VAR_POSITIONAL), _Kinds("kwargs", _Kinds.VAR_KEYWORD)]
    shown = _parameters(fun)
    return real, real if shown is None else shown


def _name_of(parameters: list[inspect.Parameter], kind: Any) -> str:
    return next((p.name for p in parameters if p.kind is kind), "")


def _shown_names(real: list[inspect.Parameter], shown: list[inspect.Parameter]) -> tuple[Any, ...]:
    """What options and messages call the values that `*args` and `**kwargs` take."""
    by_position, by_name = _name_of(real, _Kinds.VAR_POSITIONAL), _name_of(real, _Kinds.VAR_KEYWORD)
    own = {p.name for p in real if p.name not in (by_position, by_name)}
    num_positional = sum(p.kind in _POSITIONAL for p in real)
    positional = [p.name for p in shown if p.kind in _POSITIONAL][num_positional:] if by_position else []
    named = [p.name for p in shown if p.kind in (_Kinds.POSITIONAL_OR_KEYWORD, _Kinds.KEYWORD_ONLY)] if by_name else []
    taken = {*positional, *named}
    return (
        "" if by_position in taken else by_position,
        "" if by_name in taken else by_name,
        tuple("" if name in own else name for name in positional),
        tuple(named),
        _name_of(shown, _Kinds.VAR_POSITIONAL) if by_position else "",
        _name_of(shown, _Kinds.VAR_KEYWORD) if by_name else "",
    )


def argument_names(fun: Any) -> tuple[list[str], bool]:
    """The names by which options may mean arguments of `fun`, and whether its `**kwargs` may have others."""
    real, shown = _real_and_shown(fun)
    all_positional, all_named, positional, named, *others = _shown_names(real, shown)
    own = [p.name for p in real if p.kind not in (_Kinds.VAR_POSITIONAL, _Kinds.VAR_KEYWORD)]
    names = dict.fromkeys((*own, *positional, *named, *others, all_positional, all_named))
    return [name for name in names if name], bool(_name_of(real, _Kinds.VAR_KEYWORD))


def call_parameters(fun: Any) -> tuple[Any, ...]:
    """Describes how `fun` is called, for the native binding of arguments."""
    real, shown = _real_and_shown(fun)
    named = [p for p in real if p.kind in _POSITIONAL] + [p for p in real if p.kind is _Kinds.KEYWORD_ONLY]
    return (
        _display_name(fun),
        tuple(p.name for p in named),
        tuple(p.default is not _Kinds.empty for p in named),
        sum(p.kind is _Kinds.POSITIONAL_ONLY for p in named),
        sum(p.kind in _POSITIONAL for p in named),
        _name_of(real, _Kinds.VAR_POSITIONAL),
        bool(_name_of(real, _Kinds.VAR_KEYWORD)),
        _live_defaults(fun),
        *_shown_names(real, shown),
    )


def _live_defaults(fun: Any) -> int:
    """Whose `__defaults__` the parameters have: 1 the callable's, 2 those of its class's `__call__`, 0 unknown."""
    if isinstance(fun, types.FunctionType):
        return 1
    others = isinstance(fun, (_core.JitFunction, types.MethodType, functools.partial, type))
    if others or _is_bound_method_of_module(fun) or _is_called_as_wrapped(fun):
        return 0
    return 2 if isinstance(_call_method(fun), types.FunctionType) else 0


def _identity(x: Any) -> Any:
    return x


def install() -> None:
    """Connects the native stages with jax. Called once, when partax is imported."""
    _core.configure(
        describe=describe,
        default_dict=collections.defaultdict,
        registry=_REGISTRY,
        one_level=_one_level,
        treedef_of=_treedef_of,
        jax_array=jax.Array,
        jax_array_type=concrete_array_type(),
        treedef_type=jax.tree_util.PyTreeDef,
        is_inexact=_is_inexact,
        call_parameters=call_parameters,
        filter=Filter,
        simple_key=_simple_key,
        partial_type=functools.partial,
        jitted_type=type(jax.jit(_identity)),
        jitted_parts=jit_parts,
        cached_property=functools.cached_property,
        is_installed=is_installed,
        global_names=global_names,
        is_of_library=is_of_library,
        reads_outside=reads_outside,
        written_cells=written_cells,
    )
    registered = registered_nodes()
    if registered is not None:
        _core.configure(registered=registered)
