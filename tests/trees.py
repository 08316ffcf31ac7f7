"""The shared corpus: fresh trees of every node family, and an exact comparison that trusts no core.

Every maker gives a new tree with the same static part, the same shapes and the same values each
time, so two calls of one maker must share one trace.
"""

import dataclasses
import enum
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import partax
from reference import assert_exact, exact_leaf


def array(*shape: int, start: float = 0.0) -> jax.Array:
    """An array with a different value in every place."""
    return jnp.arange(start, start + np.prod(shape, dtype=int), dtype=jnp.float32).reshape(shape)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    left: Any
    right: Any


class Deeper(NamedTuple):
    pair: Pair
    label: str = "deeper"


@dataclasses.dataclass(frozen=True)
class Config:
    """A frozen dataclass: a plain static value."""

    width: Any = 3
    name: Any = "config"


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Cell:
    weight: Any
    bias: Any = None
    mode: Any = dataclasses.field(default="same", metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class SlottedCell:
    weight: Any
    mode: Any = dataclasses.field(default="same", metadata={"static": True})


class Declared:
    """Registered with functions, of which partax is told what they do."""

    def __init__(self, first: Any, second: Any, label: Any = "declared") -> None:
        self.first, self.second, self.label = first, second, label


class DeclaredSlots:
    """The same with slots."""

    __slots__ = ("first", "label", "second")
    __init__ = Declared.__init__  # type: ignore[assignment]


for _declared in (Declared, DeclaredSlots):
    jax.tree_util.register_pytree_node(
        _declared,
        lambda it: ((it.second, it.first), it.label),
        lambda label, children, cls=_declared: cls(children[1], children[0], label),
    )
    partax.register_fields(_declared, data_fields=("second", "first"), meta_fields=("label",))


class Bag:
    """Registered without keys: its children have only numbers in a path."""

    def __init__(self, *items: Any, label: Any = "bag") -> None:
        self.items = items
        self.label = label


class Tray:
    """Registered with keys."""

    def __init__(self, top: Any, bottom: Any, label: Any = "tray") -> None:
        self.top = top
        self.bottom = bottom
        self.label = label


def _tray_with_keys(t: Tray) -> tuple[Any, Any]:
    key = jax.tree_util.GetAttrKey
    return ((key("top"), t.top), (key("bottom"), t.bottom)), t.label


jax.tree_util.register_pytree_node(Bag, lambda b: (b.items, b.label), lambda label, items: Bag(*items, label=label))
jax.tree_util.register_pytree_with_keys(Tray, _tray_with_keys, lambda label, c: Tray(*c, label=label))


class Layer(eqx.Module):
    """Arrays, a child that may be None, a static leaf and static fields."""

    weight: Any
    bias: Any = None
    rate: Any = 0.5
    scale: Any = eqx.field(static=True, default=2)
    activation: Any = eqx.field(static=True, default=jnp.tanh)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.activation(self.weight @ x) * self.scale
        return y if self.bias is None else y + self.bias

    def total(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self(x))


class Model(eqx.Module):
    layers: list[Layer]
    name: str = eqx.field(static=True, default="model")

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = layer(x)
        return x


class Empty(eqx.Module):
    """No fields at all."""


class Wrapper(eqx.Module):
    """Equinox keeps the wrapped callable's names in the instance."""

    fn: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.fn


def make_model(depth: int = 2, *, scale: Any = 2, start: float = 0.0) -> Model:
    return Model([Layer(array(3, 3, start=start), array(3), scale=scale) for _ in range(depth)])


def network() -> Any:
    """Two linear layers, a convolution, and a linear layer inside another module."""
    keys = jax.random.split(jax.random.key(0), 4)
    return {
        "layers": [
            eqx.nn.Linear(2, 3, key=keys[0]),
            eqx.nn.Conv2d(1, 1, 1, key=keys[1]),
            eqx.nn.Sequential([eqx.nn.Linear(3, 2, use_bias=False, key=keys[2])]),
        ],
        "head": eqx.nn.Linear(2, 1, key=keys[3]),
        "scale": jnp.ones(()),
        "name": "network",
    }


def absent_layer() -> Layer:
    """A module one of whose fields is not there, as inside ``__init__`` or after surgery."""
    layer = Layer(array(2, 2), array(2))
    object.__delattr__(layer, "bias")
    return layer


def double(x: jax.Array) -> jax.Array:
    """Twice x."""
    return x * 2


def _adam() -> Any:
    return optax.adam(1e-3).init({"w": array(2, 2), "b": array(2)})


def _chain() -> Any:
    schedule = optax.linear_schedule(1e-2, 1e-3, 10)
    return optax.chain(optax.clip(1.0), optax.adamw(schedule)).init((array(3), array(2)))


def _mixed() -> Any:
    return [
        make_model(),
        {"state": [_adam(), None, (), {}]},
        Pair(Cell(array(2), mode="half"), (Bag(Tray(1, array(1)), label=(1, "x")), True)),
        OrderedDict(z=Config(), a=[Colour.RED, "text", b"bytes", 1.5, np.arange(3)]),
    ]


_KEY = jax.random.key(0)

SAMPLES: dict[str, Callable[[], Any]] = {
    "array": lambda: array(3),
    "bfloat16": lambda: jnp.ones(3, jnp.bfloat16),
    "prng_key": lambda: jax.random.key(7),
    "numpy_array": lambda: np.arange(4, dtype=np.float32),
    "none": lambda: None,
    "statics": lambda: [1, True, 1.0, "s", b"b", 2j, None, Colour.BLUE, Config(), double],
    "nan_and_zeros": lambda: (float("nan"), 0.0, -0.0),
    "empty": lambda: [(), [], {}, OrderedDict(), Empty(), None],
    "list": lambda: [array(2), [array(1), [None, 2.0]]],
    "dict": lambda: {"b": array(2), "a": {"d": 1, "c": array(1)}},
    "dict_int_keys": lambda: {10: array(1), -1: array(2), 3: "x"},
    "ordered_dict": lambda: OrderedDict([("z", array(2)), ("a", 1), ("m", None)]),
    "defaultdict": lambda: defaultdict(list, b=array(2), a=1),
    "named_tuple": lambda: Deeper(Pair(array(2), "right")),
    "dataclass": lambda: Cell(array(2), Cell(array(1), mode=(1, "x"))),
    "module": lambda: Layer(array(2, 2), array(2)),
    "module_absent": absent_layer,
    "module_nested": lambda: make_model(3),
    "module_wrapper": lambda: eqx.module_update_wrapper(Wrapper(double)),
    "module_of_module": lambda: eqx.module_update_wrapper(Wrapper(make_model())),
    "bound_method": lambda: make_model().layers[0].total,
    "eqx_partial": lambda: eqx.Partial(make_model(), array(3)),
    "eqx_vmap": lambda: eqx.filter_vmap(make_model()),
    "jax_partial": lambda: jax.tree_util.Partial(double, array(2)),
    "jax_partial_keywords": lambda: jax.tree_util.Partial(jnp.sum, axis=0, b=array(2)),
    "mlp": lambda: eqx.nn.MLP(2, 2, 4, 2, key=_KEY),
    "adam": _adam,
    "optax_chain": _chain,
    "node_without_keys": lambda: Bag(array(2), 1, Bag(array(1))),
    "dataclass_slots": lambda: SlottedCell(array(2), mode=("x", 2)),
    "declared": lambda: Declared(array(2), Declared("x", array(1), label=("a", 1))),
    "declared_slots": lambda: DeclaredSlots(array(2), [DeclaredSlots(array(1), 1.5)]),
    "node_with_keys": lambda: Tray(array(2), Tray("x", array(1), label=("a", 1))),
    "mixed": _mixed,
}


def samples() -> dict[str, Any]:
    """One tree of them all."""
    return {name: make() for name, make in SAMPLES.items()}


def is_array(x: Any) -> bool:
    """What filter_jit traces."""
    return isinstance(x, jax.Array | np.ndarray | np.generic)


def add_one(tree: Any) -> Any:
    """Every array that counts plus one; every other leaf as it is."""

    def one(x: Any) -> Any:
        if not is_array(x) or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return x
        return jnp.logical_not(x) if x.dtype == bool else x + 1

    return jax.tree.map(one, tree)


def assert_close(actual: Any, expected: Any, terms: int = 64) -> None:
    """The same numbers from another program, which may add in another order, fuse, and approximate `tanh` otherwise.

    Each of the `terms` that a number is made of may be off by an eps of the largest of them, which is 1 or a result.
    """
    assert isinstance(actual, jax.Array)
    assert (actual.shape, actual.dtype) == (np.shape(expected), getattr(expected, "dtype", actual.dtype))
    kind = np.result_type(actual.dtype, np.float64)
    found, wanted = np.asarray(actual).astype(kind), np.asarray(expected).astype(kind)
    tolerance = terms * float(jnp.finfo(actual.dtype).eps) * np.abs(wanted).max(initial=1)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(jnp, name, name))


def bits(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    """What two arrays have alike only if they are the same, bit by bit."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return str(value.dtype), value.shape, np.asarray(jax.random.key_data(value)).tobytes()
    return str(value.dtype), value.shape, np.asarray(value).tobytes()


def assert_same(actual: Any, expected: Any) -> None:
    """Same node types, aux data and leaves, exactly; but an array of any kind came out as jax's, of a weak type or not.

    JAX sorts dict keys: let ``expected`` have been through ``jax.tree.map``.
    """
    assert_exact(actual, expected, leaf=functools.partial(exact_leaf, weak=False))
