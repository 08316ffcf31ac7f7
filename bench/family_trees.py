"""The same 400 arrays in 200 nodes of each library whose trees partax reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import partax

NODES = 200
Pairs = list[tuple[jax.Array, jax.Array]]
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Trees:
    """How one family holds pairs of arrays, and how to find a computed array without walking its tree."""

    build: Callable[[Pairs], Any]
    an_array: Callable[[Any], jax.Array]


@dataclass(frozen=True)
class Family:
    """A family by the name of its row."""

    name: str
    trees: Callable[[], Trees]
    """Imports the library."""
    install: str = ""
    """What to install for it, beyond what every benchmark needs."""
    own: bool = False
    """A class of the user's, whose functions have to be called: compared with `jax.jit`, which calls them too."""


def pairs() -> Pairs:
    return [(jnp.full((16,), float(i)), jnp.full((16,), -float(i))) for i in range(NODES)]


def _each(node: Callable[[jax.Array, jax.Array], Any], an_array: Callable[[Any], jax.Array]) -> Trees:
    """A list of nodes; `an_array` takes one out of a node."""
    return Trees(lambda pairs: [node(*pair) for pair in pairs], lambda tree: an_array(tree[0]))


_WEIGHT = attrgetter("weight")


def _dict() -> Trees:
    return _each(lambda weight, bias: {"weight": weight, "bias": bias}, itemgetter("weight"))


class _Pair(NamedTuple):
    weight: jax.Array
    bias: jax.Array


def _named_tuple() -> Trees:
    return _each(_Pair, _WEIGHT)


@jax.tree_util.register_dataclass
@dataclass
class _Registered:
    weight: jax.Array
    bias: jax.Array


def _register_dataclass() -> Trees:
    return _each(_Registered, _WEIGHT)


class _Affine(eqx.Module):
    weight: jax.Array
    bias: jax.Array


def _equinox_module() -> Trees:
    return _each(_Affine, _WEIGHT)


def _partial() -> Trees:
    def affine(weight: jax.Array, bias: jax.Array, x: jax.Array) -> jax.Array:
        return weight * x + bias

    return _each(lambda *pair: jax.tree_util.Partial(affine, *pair), lambda node: node.args[0])


def _optax_state() -> Trees:
    """Adam's moments of half as many arrays, which are as many as the other families have, and its counter."""

    def build(pairs: Pairs) -> Any:
        model = {str(i): {"weight": weight, "bias": bias} for i, (weight, bias) in enumerate(pairs[::2])}
        return optax.adam(1e-3).init(model)

    return Trees(build, lambda state: state[0].nu["0"]["weight"])


def _haiku_parameters() -> Trees:
    import haiku as hk

    def build(pairs: Pairs) -> Any:
        def model() -> None:
            for i in range(len(pairs)):
                linear = hk.Linear(16, name=f"layer_{i}")
                linear(jnp.ones((1, 1)))

        names = hk.transform(model).init(jax.random.key(0))
        return jax.tree.unflatten(jax.tree.structure(names), [array for pair in pairs for array in pair])

    return Trees(build, lambda params: params["layer_0"]["w"])


def _haiku_immutable() -> Trees:
    from haiku.data_structures import to_immutable_dict

    parameters = _haiku_parameters()
    return Trees(lambda pairs: to_immutable_dict(parameters.build(pairs)), parameters.an_array)


def _flax_dataclass() -> Trees:
    from flax import struct

    @struct.dataclass
    class Affine:
        weight: jax.Array
        bias: jax.Array

    return _each(Affine, _WEIGHT)


def _flax_pytree_node() -> Trees:
    from flax import struct

    class Affine(struct.PyTreeNode):
        weight: jax.Array
        bias: jax.Array

    return _each(Affine, _WEIGHT)


def _flax_frozen_dict() -> Trees:
    from flax.core import FrozenDict

    return _each(lambda weight, bias: FrozenDict(weight=weight, bias=bias), itemgetter("weight"))


def _flax_train_state() -> Trees:
    """Half as many parameters, as many momenta, and a counter; its functions are static."""
    from flax.training.train_state import TrainState

    def build(pairs: Pairs) -> Any:
        params = {str(i): {"weight": weight, "bias": bias} for i, (weight, bias) in enumerate(pairs[::2])}
        state = TrainState.create(apply_fn=jnp.add, params=params, tx=optax.sgd(1e-3, momentum=0.9))
        return state.replace(step=jnp.zeros((), int))

    return Trees(build, lambda state: state.params["0"]["weight"])


def _nnx_module() -> Trees:
    from flax import nnx

    class Affine(nnx.Module):
        def __init__(self, weight: jax.Array, bias: jax.Array) -> None:
            self.weight = nnx.Param(weight)
            self.bias = nnx.Param(bias)

    return _each(Affine, lambda node: node.weight.get_value())


def _nnx_list() -> Trees:
    from flax import nnx

    return _each(lambda *pair: nnx.List(map(nnx.Param, pair)), lambda node: node[0].get_value())


def _nnx_dict() -> Trees:
    from flax import nnx

    return _each(
        lambda weight, bias: nnx.Dict(weight=nnx.Param(weight), bias=nnx.Param(bias)),
        lambda node: node["weight"].get_value(),
    )


def _nnx_state() -> Trees:
    from flax import nnx

    return _each(
        lambda weight, bias: nnx.State({"weight": nnx.Param(weight), "bias": nnx.Param(bias)}),
        lambda state: state["weight"].get_value(),
    )


def _nnx_flat_state() -> Trees:
    from flax import nnx

    return _each(
        lambda weight, bias: nnx.to_flat_state(nnx.State({"weight": nnx.Param(weight), "bias": nnx.Param(bias)})),
        lambda state: state.leaves[0].get_value(),
    )


def _chex(**options: bool) -> Callable[[], Trees]:
    def trees() -> Trees:
        import chex

        @chex.dataclass(**options)
        class Affine:
            weight: jax.Array
            bias: jax.Array

        return _each(lambda weight, bias: Affine(weight=weight, bias=bias), _WEIGHT)

    return trees


def _penzai_struct() -> Trees:
    from penzai import pz

    @pz.pytree_dataclass
    class Affine(pz.Struct):
        weight: jax.Array
        bias: jax.Array

    return _each(Affine, _WEIGHT)


class _Own:
    def __init__(self, weight: jax.Array, bias: jax.Array, name: str = "affine") -> None:
        self.weight = weight
        self.bias = bias
        self.name = name


def _new_own() -> type[_Own]:
    """A new class, registered with Python functions."""

    class Affine(_Own):
        pass

    jax.tree_util.register_pytree_node(
        Affine, lambda node: ((node.weight, node.bias), (node.name,)), lambda aux, children: Affine(*children, *aux)
    )
    return Affine


def _own() -> Trees:
    return _each(_new_own(), _WEIGHT)


def _own_with_fields() -> Trees:
    Affine = _new_own()
    partax.register_fields(Affine, data_fields=("weight", "bias"), meta_fields=("name",))
    return _each(Affine, _WEIGHT)


def _own_with_keys() -> Trees:
    @jax.tree_util.register_pytree_with_keys_class
    class Affine(_Own):
        def tree_flatten_with_keys(self) -> tuple[Any, tuple[str]]:
            key = jax.tree_util.GetAttrKey
            return ((key("weight"), self.weight), (key("bias"), self.bias)), (self.name,)

        @classmethod
        def tree_unflatten(cls, aux: tuple[str], children: Any) -> Any:
            return cls(*children, *aux)

    return _each(Affine, _WEIGHT)


FAMILIES = (
    Family("dict", _dict),
    Family("NamedTuple", _named_tuple),
    Family("register_dataclass", _register_dataclass),
    Family("tree_util.Partial", _partial),
    Family("equinox.Module", _equinox_module),
    Family("optax Adam state of dicts", _optax_state),
    Family("haiku parameters", _haiku_parameters, "dm-haiku"),
    Family("haiku FlatMap", _haiku_immutable, "dm-haiku"),
    Family("flax.struct.dataclass", _flax_dataclass, "flax"),
    Family("flax PyTreeNode", _flax_pytree_node, "flax"),
    Family("flax FrozenDict", _flax_frozen_dict, "flax"),
    Family("flax TrainState", _flax_train_state, "flax"),
    Family("nnx.Module", _nnx_module, "flax"),
    Family("nnx.List", _nnx_list, "flax"),
    Family("nnx.Dict", _nnx_dict, "flax"),
    Family("nnx.State", _nnx_state, "flax"),
    Family("nnx FlatState", _nnx_flat_state, "flax"),
    Family("chex.dataclass", _chex(), "chex"),
    Family("chex.dataclass, frozen", _chex(frozen=True), "chex"),
    Family("chex.dataclass, not mappable", _chex(mappable_dataclass=False), "chex"),
    Family("penzai Struct", _penzai_struct, "penzai"),
    Family("own class, partax.register_fields", _own_with_fields),
    Family("own class, register_pytree_node", _own, own=True),
    Family("own class, register_pytree_with_keys", _own_with_keys, own=True),
)


def rows_of_installed(rows_of: Callable[[Family], list[_Row]]) -> tuple[list[_Row], list[str]]:
    """The rows of all families whose libraries are installed, and what to say of the others."""
    rows: list[_Row] = []
    notes: list[str] = []
    for family in FAMILIES:
        try:
            rows += rows_of(family)
        except ImportError as error:
            notes.append(f"{family.name} is left out ({error}): run pip install {family.install}")
    return rows, notes
