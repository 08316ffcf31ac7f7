"""Dataclasses of `jax.tree_util.register_dataclass`, which include those of `flax.struct`."""

import dataclasses
import functools
import inspect
from typing import Any

import jax

from partax._families.fields import Description, hidden, identical, values_of
from partax._jax.nodes import flatten_one_level_with_keys, is_registered_dataclass


def describe(obj: Any) -> Description | None:
    """Describe a registered dataclass; None if jax flattens the object to anything but its fields."""
    cls = type(obj)
    if not dataclasses.is_dataclass(cls):
        return None
    try:
        pairs, aux = flatten_one_level_with_keys(obj)
    except Exception:
        return None
    children = tuple(key.name for key, _ in pairs if isinstance(key, jax.tree_util.GetAttrKey))
    if len(children) != len(pairs) or not isinstance(aux, tuple):
        return None
    statics = tuple(f.name for f in dataclasses.fields(cls) if f.init and f.name not in children)
    if hidden(cls, children + statics) or not (is_registered_dataclass(cls) and _calls_dataclasses()):
        return None
    values = values_of(obj, children + statics)
    if values is None or not identical((*(value for _, value in pairs), *aux), values):
        return None
    return ("dataclass", children, statics)


@functools.cache
def _calls_dataclasses() -> bool:
    """Whether jax rebuilds a dataclass by calling the class, instead of setting the fields of an empty instance."""
    calls: list[Any] = []

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(init=False)
    class Probe:
        field: Any

        def __init__(self, field: Any):
            calls.append(field)
            self.field = field

    jax.tree.map(lambda leaf: leaf, Probe(0))
    return len(calls) == 2


def order_of_call(cls: type) -> tuple[str, ...]:
    """The order in which a generated `__init__` sets all fields; empty if the user wrote it. Called by C++."""
    fields = dataclasses.fields(cls)
    names = tuple(field.name for field in fields)
    init: Any = inspect.getattr_static(cls, "__init__")
    params: Any = getattr(cls, "__dataclass_params__", None)
    if not all(field.init for field in fields) or hidden(cls, names) or not hasattr(init, "__code__") or params is None:
        return ()
    if inspect.getattr_static(cls, "__new__") is not object.__dict__["__new__"]:
        return ()
    missing = dataclasses.MISSING
    traits = ((f.name, f.default is not missing, f.default_factory is not missing, f.kw_only is True) for f in fields)
    generated: Any = _generated_init(tuple(traits), params.frozen)
    if init.__code__ != generated.__code__:
        return ()
    # The `__init__` of a frozen class sets fields by `object.__setattr__`, which is in its closure; that of any other
    # class calls the class's own `__setattr__`.
    if not params.frozen and inspect.getattr_static(cls, "__setattr__") is not object.__dict__["__setattr__"]:
        return ()
    for name, own, expected in zip(
        init.__code__.co_freevars, init.__closure__ or (), generated.__closure__ or (), strict=True
    ):
        is_default = name.startswith(("_dflt_", "__dataclass_dflt_"))
        if not is_default and own.cell_contents is not expected.cell_contents:
            return ()
    return names


@functools.lru_cache(maxsize=64)
def _generated_init(fields: tuple[tuple[str, bool, bool, bool], ...], frozen: bool) -> Any:
    """The `__init__` that `dataclasses` generates for fields with these names and defaults."""
    specs: list[tuple[str, type, Any]] = []
    for name, has_default, has_factory, kw_only in fields:
        options: dict[str, Any] = {"default": None} if has_default else {"default_factory": list} if has_factory else {}
        specs.append((name, object, dataclasses.field(kw_only=kw_only, **options)))
    return dataclasses.make_dataclass("Probe", specs, frozen=frozen).__init__
