"""Random trees of every family: drawn as recipes, built as often as a test wants, and changed in one thing."""

import os
import struct
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from library_trees import PAIRS
from reference import is_dynamic
from trees import Bag, Cell, Colour, Config, Layer, Pair, Tray, add_one, double

EXAMPLES = int(os.environ.get("PARTAX_EXAMPLES", "20"))
thorough = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
quick = settings(thorough, max_examples=2 * EXAMPLES)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Tag:
    """A node without children: all of it is static."""

    value: Any


# A tree is drawn as a recipe, so that equal trees of fresh objects can be built again and again.
@dataclass(frozen=True)
class Array:
    kind: str


@dataclass(frozen=True)
class Static:
    value: Any


@dataclass(frozen=True)
class Node:
    family: str
    children: "tuple[Array | Static | Node, ...]"
    aux: Any = None
    keys: tuple[Any, ...] = ()


ARRAYS = {
    "float32": lambda n: jnp.full((2,), n, jnp.float32),
    "float32 matrix": lambda n: jnp.full((1, 2), n, jnp.float32),
    "int32": lambda n: jnp.full((2,), n, jnp.int32),
    "bfloat16": lambda n: jnp.full((2,), n, jnp.bfloat16),
    "bool": lambda n: jnp.asarray(n % 2 == 0),
    "weak float": lambda n: jnp.asarray(float(n)),
    "key": jax.random.key,
    "numpy float64": lambda n: np.full((2,), n, np.float64),
    "numpy int32": lambda n: np.full((2,), n, np.int32),
    "numpy scalar": np.float32,
    "empty": lambda n: jnp.zeros((0,)),
}
FLOATS = [0.0, -0.0, 1.0, 2.5, float("inf"), float("nan"), -float("nan")]
FUNCTIONS = [double, len, jnp.tanh, int, add_one]

atoms = st.one_of(
    st.integers(-1, 2),
    st.booleans(),
    st.sampled_from(FLOATS),
    st.builds(complex, st.sampled_from(FLOATS), st.sampled_from(FLOATS)),
    st.sampled_from(["", "a", "1", "True", "é"]),
    st.sampled_from([b"", b"a"]),
    st.sampled_from(list(Colour)),
    st.sampled_from(FUNCTIONS),
)
hashables = st.recursive(
    st.one_of(atoms, st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=2),
        st.builds(Config, inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=4,
)
# Aux data and static fields may also hold mutable containers: they count by value.
aux_data = st.one_of(
    hashables,
    st.lists(hashables, max_size=2),
    st.dictionaries(st.sampled_from("ab"), hashables, max_size=2).map(lambda d: dict(sorted(d.items()))),
    st.sets(atoms, max_size=2),
)
static_leaves = st.one_of(
    atoms,
    st.frozensets(hashables, max_size=2),
    st.builds(Config, hashables, hashables),
    st.sets(atoms, max_size=2),
    st.binary(max_size=2).map(bytearray),
)
leaves = st.one_of(st.sampled_from(sorted(ARRAYS)).map(Array), static_leaves.map(Static), st.just(Node("none", ())))
dict_keys = st.one_of(
    st.lists(st.sampled_from(["b", "a", "", "a b", "'"]), unique=True, max_size=3),
    st.lists(st.sampled_from([3, -1, 0.5, True]), unique=True, max_size=3),
    st.lists(st.sampled_from([(1, "x"), (0,), ()]), unique=True, max_size=2),
)


def nodes(inner: st.SearchStrategy) -> st.SearchStrategy:
    def fixed(family: str, size: int) -> st.SearchStrategy:
        return st.builds(Node, st.just(family), st.tuples(*[inner] * size), aux_data)

    def keyed(family: str) -> st.SearchStrategy:
        def fill(keys: list[Any]) -> st.SearchStrategy:
            children = st.tuples(*[inner] * len(keys))
            factory = st.sampled_from([int, list, None])
            return st.builds(Node, st.just(family), children, factory, st.just(tuple(keys)))

        return dict_keys.flatmap(fill)

    children = st.lists(inner, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Node, st.sampled_from(["tuple", "list"]), children),
        st.builds(Node, st.just("bag"), children, aux_data),
        *[keyed(family) for family in ("dict", "ordered", "default")],
        *[fixed(family, 2) for family in ("named", "cell", "tray")],
        # A partial takes no other children than it has: jax refuses them too.
        st.sampled_from(sorted(PAIRS.keys() - {"partial"})).flatmap(lambda family: fixed(family, 2)),
        fixed("layer", 3),
        fixed("tag", 0),
    )


recipes = st.recursive(leaves, nodes, max_leaves=8)


def fresh(value: Any) -> Any:
    """An equal static value that shares no object with the given one where Python allows it."""
    if type(value) is float:
        return struct.unpack("d", struct.pack("d", value))[0]
    if type(value) is complex:
        return complex(fresh(value.real), fresh(value.imag))
    if type(value) in (set, frozenset):
        return type(value)(value)  # their order is that of hashes, and the hash of a NaN is that of its object
    if type(value) in (tuple, list):
        return type(value)([fresh(x) for x in value])
    if isinstance(value, dict):
        return type(value)((k, fresh(v)) for k, v in value.items())
    if type(value) is Pair:
        return Pair(*map(fresh, value))
    if type(value) is Config:
        return Config(fresh(value.width), fresh(value.name))
    return bytearray(value) if type(value) is bytearray else value


def build(recipe: Any, n: int) -> Any:
    """A fresh tree; its arrays are filled from n."""
    if isinstance(recipe, Array):
        return ARRAYS[recipe.kind](n)
    if isinstance(recipe, Static):
        return fresh(recipe.value)
    children = [build(child, n + i) for i, child in enumerate(recipe.children)]
    aux = fresh(recipe.aux)
    items = list(zip(recipe.keys, children, strict=False))
    if recipe.family in PAIRS:
        return PAIRS[recipe.family](*children, aux)
    return {
        "none": lambda: None,
        "tuple": lambda: tuple(children),
        "list": lambda: children,
        "dict": lambda: dict(items),
        "ordered": lambda: OrderedDict(items),
        "default": lambda: defaultdict(aux, items),
        "named": lambda: Pair(*children),
        "cell": lambda: Cell(*children, mode=aux),
        "layer": lambda: Layer(*children, scale=aux),
        "bag": lambda: Bag(*children, label=aux),
        "tray": lambda: Tray(*children, label=aux),
        "tag": lambda: Tag(aux),
    }[recipe.family]()


def lookalikes(value: Any) -> list[Any]:
    """Values that `==` or a careless key may take for this one."""
    if type(value) in (int, bool, float):
        finite = value == value and abs(value) != float("inf")
        return [int(value), bool(value), float(value), -value] if finite else [-value]
    if type(value) in (tuple, list):
        changed = [type(value)([x, *value[1:]]) for x in lookalikes(value[0])] if value else []
        return [tuple(value), list(value), *changed]
    if type(value) in (set, frozenset):
        return [set(value), frozenset(value)]
    if type(value) is Config:
        return [replace(value, width=x) for x in lookalikes(value.width)]
    return [bytes(value), bytearray(value)] if type(value) in (bytes, bytearray) else []


@st.composite
def variants(draw: st.DrawFn, recipe: Any) -> Any:
    """The recipe with one thing changed: a leaf, an aux value, or the whole."""
    if isinstance(recipe, Array):
        return draw(st.one_of(leaves, st.sampled_from(sorted(ARRAYS)).map(Array)))
    if isinstance(recipe, Static):
        near = [Array("numpy scalar") if is_dynamic(x) else Static(x) for x in lookalikes(recipe.value)]
        near = [x for x in near if not isinstance(getattr(x, "value", None), tuple | list)]
        return draw(st.one_of(st.sampled_from(near), leaves) if near else leaves)
    if recipe.children and draw(st.booleans()):
        i = draw(st.integers(0, len(recipe.children) - 1))
        changed = draw(variants(recipe.children[i]))
        return replace(recipe, children=(*recipe.children[:i], changed, *recipe.children[i + 1 :]))
    if recipe.family in ("cell", "layer", "bag", "tray", "tag", *PAIRS):
        near = lookalikes(recipe.aux)
        return replace(recipe, aux=draw(st.sampled_from(near) if near else aux_data))
    if recipe.family in ("dict", "ordered"):
        return replace(recipe, family=draw(st.sampled_from(["dict", "ordered"])))
    if recipe.family in ("tuple", "list"):
        return replace(recipe, family=draw(st.sampled_from(["tuple", "list", "bag"])))
    return draw(recipes)
