"""A slow model of filter_jit's static keys, in Python over jax.tree: type-exact, floats by bits, mutable containers by
value. A call traces once for each new pair of static key and abstract values."""

import dataclasses
import enum
import struct
import types
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_REGISTRY = jax.tree_util.default_registry


def is_dynamic(x: Any) -> bool:
    """What filter_jit traces."""
    return isinstance(x, jax.Array | np.ndarray | np.generic | jax.Ref)


def one_level(x: Any) -> list[tuple[Any, Any]] | None:
    """The (key, child) pairs of a node, in order; None for a leaf."""
    if _REGISTRY.flatten_one_level(x) is None:
        return None
    pairs, _ = jax.tree_util.tree_flatten_with_path(x, is_leaf=lambda y: y is not x)
    return [(key, child) for (key,), child in pairs]


def children_of(x: Any) -> list[tuple[str, Any]] | None:
    """The same with path segments."""
    pairs = one_level(x)
    return None if pairs is None else [(jax.tree_util.keystr((key,)), child) for key, child in pairs]


def aux_of(node: Any) -> Any:
    return _REGISTRY.flatten_one_level(node)[1]


class _Generic:
    """Any other value: same type, same hash, and `==` gives True."""

    def __init__(self, value: Any, path: str, *, compared_only: bool) -> None:
        self.value = value
        try:
            self.hash = hash(value)
        except TypeError as error:
            if not compared_only:
                raise TypeError(f"{path}: a {type(value).__name__} cannot be hashed") from error
            self.hash = 0

    def __repr__(self) -> str:
        return f"{type(self.value).__qualname__} {self.hash}"

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Generic) or type(self.value) is not type(other.value):
            return False
        if self.value is other.value:
            return True
        return self.hash == other.hash and (self.value == other.value) is True


def canonical(value: Any, path: str = "value", *, compared_only: bool = False) -> Hashable:
    """A hashable that equals another one exactly if the two static values are the same."""

    def inner(items: Any) -> tuple[Hashable, ...]:
        return tuple(canonical(x, f"{path}[{i}]", compared_only=compared_only) for i, x in enumerate(items))

    kind = type(value)
    if isinstance(value, jax.Array | np.ndarray):
        raise TypeError(f"{path}: an array ({kind.__name__}) as a static value")
    if isinstance(value, np.generic):
        return kind, str(value.dtype), value.tobytes()
    if kind is float:
        return kind, struct.pack("d", value)
    if kind is complex:
        return kind, struct.pack("2d", value.real, value.imag)
    if kind in (int, bool, str, bytes, types.NoneType) or isinstance(value, enum.Enum):
        return kind, value
    if kind is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")) or kind in (list, set, frozenset):
        return kind, inner(value)  # of sets in the order in which a program can read them
    if isinstance(value, dict):
        return kind, inner(value), inner(value.values())
    if kind is bytearray:
        return kind, bytes(value)
    if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:
        return kind, inner(getattr(value, f.name) for f in dataclasses.fields(value))
    return kind, _Generic(value, path, compared_only=compared_only)


def static_key(tree: Any, path: str = "tree") -> Hashable:
    """The hashable value of a tree's static part."""
    if is_dynamic(tree):
        return "dynamic"
    children = children_of(tree)
    if children is None:
        return "leaf", canonical(tree, path)
    aux = canonical(aux_of(tree), path, compared_only=True)
    return "node", type(tree), aux, tuple(static_key(c, path + name) for name, c in children)


def dynamic_leaves(tree: Any, path: str = "tree") -> list[tuple[str, Any]]:
    """(path, array) of every dynamic leaf, in jax.tree's order."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(path + jax.tree_util.keystr(keys), x) for keys, x in pairs if is_dynamic(x)]


def abstract(x: Any) -> tuple[Hashable, ...]:
    aval = jax.typeof(x)
    return aval.shape, aval.dtype, aval.weak_type


def to_jax(tree: Any) -> Any:
    """The tree as jax.jit gives it back: NumPy arrays and scalars have become jax arrays."""
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray | np.generic) else x, tree)


def exact_leaf(actual: Any, expected: Any, path: str, weak: bool = True) -> None:
    """Equal arrays of one dtype, and of one kind of it if ``weak``; what else is equal as a static value."""
    if not is_dynamic(expected):
        assert type(actual) is type(expected), f"{path}: {type(actual)} is not {type(expected)}"
        assert canonical(actual) == canonical(expected), f"{path}: {actual!r} is not {expected!r}"
        return
    assert isinstance(actual, jax.Array), f"{path}: {type(actual)} is not a jax.Array"
    expected = expected if isinstance(expected, jax.Array) else jnp.asarray(expected)
    assert abstract(actual)[: 2 + weak] == abstract(expected)[: 2 + weak], path
    if jnp.issubdtype(actual.dtype, jax.dtypes.prng_key):
        actual, expected = jax.random.key_data(actual), jax.random.key_data(expected)
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected), err_msg=path)


def assert_exact(
    actual: Any, expected: Any, path: str = "tree", leaf: Callable[[Any, Any, str], None] = exact_leaf
) -> None:
    """Same types, aux data and key order, exactly; leaves as `leaf` compares them."""
    wanted = None if is_dynamic(expected) else children_of(expected)
    if wanted is None:
        leaf(actual, expected, path)
        return
    assert type(actual) is type(expected), f"{path}: {type(actual)} is not {type(expected)}"
    children = children_of(actual)
    assert children is not None, f"{path}: a leaf"
    assert [name for name, _ in children] == [name for name, _ in wanted], path
    aux, wanted_aux = (canonical(aux_of(x), path, compared_only=True) for x in (actual, expected))
    assert aux == wanted_aux, f"{path}: aux data {aux!r} is not {wanted_aux!r}"
    if isinstance(expected, dict):
        assert list(actual) == list(expected), f"{path}: key order"
    for (name, a), (_, b) in zip(children, wanted, strict=True):
        assert_exact(a, b, path + name, leaf)
