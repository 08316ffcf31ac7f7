"""Guards the promise that a function made anew does not retrace where all that it reads is proven to be as it was, and
does where a value that it is made of is another one."""

import dataclasses
import enum
import functools
import inspect
import math
import operator
import typing
from collections.abc import Callable
from typing import Any

import einops
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from beartype import beartype
from flax import linen, nnx
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, jaxtyped

import partax
from callables_made_anew import MAKERS
from partax import filter_jit
from trees import assert_same

SCALE = 2.0
x = jnp.ones(3)
params = {"w": x}
key = jax.random.key(0)


def helper(x: Any) -> Any:
    return x * SCALE


def with_signature() -> Any:
    def f(x: Any, by: float = 2.0) -> Any:
        return x * by

    f.__signature__ = inspect.signature(f)  # type: ignore[attr-defined]
    return f


def annotated() -> Any:
    def f(x: Any) -> Any:
        y: Float[Array, n] = x * 2  # noqa: F821
        return y

    return f


def importing() -> Any:
    def f(x: Any) -> Any:
        import jax.numpy as inside
        from jax import lax

        return lax.abs(inside.sin(x))

    return f


def checked(check: Any, array: Any) -> Any:
    @check
    def f(x: array) -> array:  # type: ignore[valid-type]
        return x * 2

    return f


def optional(value: Any) -> Any:
    try:
        return optax.sgd and value.mine
    except AttributeError:
        return value


def matched(x: Any) -> Any:
    match x.shape, {"a": 2.0}:
        case (3,), {"a": by}:
            return x * by
    return x


def cell_of_a_notebook() -> Any:
    exec("def cell(x):\n    return jnp.sin(x) * SCALE\n", globals())
    return globals()["cell"]


class Net(eqx.Module):
    w: jax.Array
    act: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, x: Any) -> Any:
        return self.act(self.w * x) * SCALE


class Converted(eqx.Module):
    w: jax.Array = eqx.field(converter=jnp.asarray)
    b: Any = eqx.field(converter=lambda b: b * SCALE, default=1.0)


Vector = Float[Array, "n"]


@jaxtyped(typechecker=beartype)
class Checked(eqx.Module):
    a: Vector

    def scaled(self) -> Any:
        return self.a * SCALE


class Scoped(eqx.Module):
    layers: list[Any]

    @jax.named_scope("net")
    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class OfNnx(nnx.Module):
    def __init__(self) -> None:
        self.linear = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
        self.act = nnx.relu

    def __call__(self, x: Any) -> Any:
        return self.act(self.linear(x))


@dataclasses.dataclass(frozen=True)
class Frozen:
    lr: Any = 2.0

    def scale(self, x: Any) -> Any:
        return x * self.lr


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    a: float = 2.0


class Called(typing.NamedTuple):
    name: str
    fun: str = "g"
    eps: float = 1.0


class Plain:
    def __init__(self, a: Any) -> None:
        self.a = a

    def scaled(self) -> Any:
        return self.a * SCALE


class Level(enum.IntEnum):
    A = 1


@jax.tree_util.register_pytree_node_class
class Registered:
    def __init__(self, a: Any, b: float = 1.0) -> None:
        self.a, self.b = a, b

    def tree_flatten(self) -> Any:
        return (self.a,), self.b

    @classmethod
    def tree_unflatten(cls, b: float, children: Any) -> Any:
        return cls(*children, b)


@jax.tree_util.register_pytree_with_keys_class
class RegisteredWithKeys(Registered):
    def tree_flatten_with_keys(self) -> Any:
        return ((jax.tree_util.GetAttrKey("a"), self.a),), self.b


@jax.custom_jvp
def with_jvp(x: Any) -> Any:
    return jnp.sin(x)


with_jvp.defjvp(lambda p, t: (with_jvp(p[0]), t[0]))


@jax.custom_vjp
def with_vjp(x: Any) -> Any:
    return jnp.sin(x)


with_vjp.defvjp(lambda x: (with_vjp(x), x), lambda r, g: (g,))
MLP = functools.partial(eqx.nn.MLP, 3, 3, 4, 2, key=key)
# What makes a function of an array anew.
CASES: dict[str, Callable[[], Any]] = {
    "helper": lambda: lambda x: helper(jnp.sin(x)),
    "partial of jnp": lambda: functools.partial(jnp.power, x),
    "checkpoint with a policy": lambda: jax.checkpoint(lambda x: x**2, policy=jax.checkpoint_policies.dots_saveable),
    "filter_vmap": lambda: partax.filter_vmap(lambda x: (x**2).sum(), in_axes=0),
    "grad of Equinox": lambda: eqx.filter_grad(lambda x: (x**2).sum()),
    "scan": lambda: lambda x: lax.scan(lambda c, y: (c + y, y), 0.0, x),
    "math": lambda: lambda x: x * math.sqrt(2) * math.pi + np.float32(2) * np.pi,
    "NumPy": lambda: lambda x: x * np.arange(3) * np.sqrt(2.0) + jnp.pi,
    "jax.nn": lambda: lambda x: jax.nn.relu(x) + jax.nn.softmax(x) + jax.nn.gelu(x),
    "jax.random": lambda: lambda x: x + jax.random.normal(key, x.shape) * jax.random.normal(jax.random.key(0)),
    "converters": lambda: lambda x: Converted(x).w * Converted(2.0).b,
    "einops": lambda: lambda x: einops.rearrange(x, "a -> a 1"),
    "jaxtyped": lambda: checked(jaxtyped(typechecker=beartype), Float[Array, "n"]),
    "beartype": lambda: checked(beartype, jax.Array),
    "module that jaxtyping checks": lambda: lambda x: Checked(x).scaled(),
    "annotation": annotated,
    "signature": with_signature,
    "import in the body": importing,
    # Attributes whose names those of a context, an annotation or a wrapper have too.
    "names of a context": lambda: (lambda c, s: lambda x: s(lambda: x * len(c.name))())(
        Called("f"), jax.named_scope("a")
    ),
    "names of an annotation": lambda: lambda x: (isinstance(x, Float[Array, "n"]), x.astype(x.dtype))[1],
    "names of a wrapper": lambda: (lambda c, g: lambda x: g(x) * len(c.fun))(Called("f"), jax.jit(jnp.sin)),
    "names of a gradient": lambda: (lambda g: lambda x: g(x) if isinstance(x, jax.Array) else x)(jax.grad(jnp.sum)),
    "what may not be there": lambda: (lambda g: lambda x: g(x) * (2 if hasattr(x, "shape") else 3))(jax.jit(jnp.sin)),
    "what may not be there, handled": lambda: lambda x: optional(x) * 2,
    "cell of a notebook": cell_of_a_notebook,
    "match": lambda: lambda x: matched(x),
    "frozen dataclass": lambda: (lambda c: lambda x: c.scale(x) * getattr(c, "lr", 3))(Frozen()),
    "frozen dataclass with slots": lambda: (lambda c: lambda x: x * c.a)(Slots()),
    "NamedTuple": lambda: (lambda c: lambda x: x * c.eps)(Called("f")),
    "members": lambda: (lambda m: lambda x: x * m.value * Level.A.value)(Level.A),
    "class made inside": lambda: lambda x: Plain(Frozen(x).lr).scaled(),
    "format": lambda: lambda x: ("{:.2f} {!r:>10}".format(1.5, "a"), x)[1],
    "registered class": lambda: lambda x: Registered(x).a,
    "registered class with keys": lambda: lambda x: jax.tree.map(lambda a: a * 2, RegisteredWithKeys(x)).a,
    "structure of a registered class": lambda: (lambda s: lambda x: jax.tree.unflatten(s, [x]).a)(
        jax.tree.structure(Registered(1))
    ),
    "module made inside": lambda: lambda x: Net(x, jax.nn.relu)(x),
    "comprehension": lambda: lambda x: sum([x * i for i in range(3)] + list({1, 2})) + sum(k for k in (1, 2)),
    "custom_jvp": lambda: lambda x: with_jvp(x),
    "names to save": lambda: jax.checkpoint(lambda x: x * 2, policy=jax.checkpoint_policies.save_only_these_names("a")),
    "vmap of jit": lambda: jax.vmap(jax.jit(jnp.sin)),
    "checkpoint of jit": lambda: jax.checkpoint(jax.jit(lambda x: x * 2)),
    "gradient of jit": lambda: (lambda g: lambda x: g(x.sum()))(jax.grad(jnp.sin)),
    "vmap of a function with rules": lambda: jax.vmap(jax.nn.relu),
    "custom_vjp": lambda: lambda x: jax.grad(lambda y: with_vjp(y).sum())(x),
    "partition": lambda: lambda x: partax.combine(*partax.partition({"a": x}, partax.is_array)),
    "text and condition": lambda: lambda x: (print(f"{x.shape}") if x.shape == (4,) else None, x)[1],
    "error": lambda: lambda x: x if x.ndim == 1 else (_ for _ in ()).throw(ValueError("no")),
    "x.at": lambda: lambda x: x.at[0].set(2.0),
    "callable module": lambda: Net(x, jax.nn.relu),
    "callable MLP": lambda: MLP(activation=lambda x: x * 2),
}
# What a closure may hold.
HELD: dict[str, Any] = {
    "dtype": (np.dtype("float32"), jnp.float32, jnp.bfloat16),
    "slice and range": (slice(0, 1), range(3)),
    "getter of items": operator.itemgetter(1, "a"),
    "sharding": (P("x"), Mesh(np.array(jax.devices()), ("x",)), jax.ShapeDtypeStruct((3,), jnp.float32)),
    "array": x,
    "array of NumPy": (np.arange(3.0), np.ones((2, 3))[1:].T, np.asarray(x), jax.device_get(x)),
    "module of linen": linen.Dense(3),
    "object of a library": (optax.MultiSteps(optax.sgd(1.0), 2), jax.custom_batching.custom_vmap(lambda x: x)),
    "containers": ((1, (2, "a")), {"a": [1, 2]}, {1, 2}, frozenset("ab")),
    "number of NumPy": np.float32(2),
    "module": jnp,
}
for _name, _held in HELD.items():
    CASES[f"closure of a {_name}"] = lambda held=_held: (lambda v: lambda x: (v, x * 2)[1])(held)
OPTIMISERS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: getattr(optax, name)(1e-3) for name in ("adam", "lion", "adafactor", "sm3")},
    "exponential schedule": lambda: optax.sgd(optax.exponential_decay(1e-2, 10, 0.9)),
    "joined schedules": lambda: optax.sgd(optax.join_schedules([optax.constant_schedule(1.0)] * 2, [10])),
    "piecewise schedule": lambda: optax.sgd(optax.piecewise_interpolate_schedule("cosine", 1e-2, {10: 0.5})),
    "warm-up": lambda: optax.sgd(optax.warmup_cosine_decay_schedule(0.0, 1e-2, 10, 100)),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)),
    "two": lambda: optax.multi_transform({"a": optax.adam(1.0), "b": optax.set_to_zero()}, {"w": "a"}),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(optax.linear_schedule(0.0, 1e-3, 10)),
}
# Arguments of a function made anew.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "module": (Net(x, jax.nn.relu),),
    "module with a scope": (Scoped([eqx.nn.Linear(3, 3, key=key), jax.nn.relu]),),
    "module of nnx": (OfNnx(),),
    "function": (jax.nn.relu,),
}


def updating(optimiser: Any) -> Any:
    return lambda grads: optimiser.update(grads, optimiser.init(params), params)


def assert_one_trace(make: Callable[[], Any], *arguments: Any) -> None:
    kept = [filter_jit(make())]
    kept[0](*arguments)
    before = kept[0].cache_info()  # of all that have its traces, with other arguments too
    for again in (1, 2):
        kept.append(filter_jit(make()))
        kept[-1](*arguments)
        now = kept[-1].cache_info()
        assert now.traces == before.traces and now.hits == before.hits + again


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_nothing_is_traced_again(make: Callable[[], Any]) -> None:
    assert_one_trace(make, x)


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_function_of_a_function_is_not_traced_again(arguments: tuple[Any, ...]) -> None:
    assert_one_trace(lambda: lambda fun, x: fun(x), *arguments, x)


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_an_optimiser_made_anew_in_a_closure_and_as_an_argument(make: Callable[[], Any]) -> None:
    assert_one_trace(lambda: updating(make()), params)
    step = filter_jit(lambda optimiser, params, state: optimiser.update(params, state, params))
    step.clear_cache()  # the same function has had other optimisers
    for _ in range(3):
        optimiser = make()
        step(optimiser, params, optimiser.init(params))
    assert step.cache_info().traces == 1


@pytest.mark.parametrize("activation", [lambda: lambda x: jax.nn.relu(x) * 2, lambda: jax.jit(jnp.sin)])
def test_a_module_made_anew_with_a_function_of_its_own(activation: Callable[[], Any]) -> None:
    apply = filter_jit(lambda model, x: model(x))
    apply.clear_cache()
    for _ in range(3):
        apply(MLP(activation=activation()), x)
        apply(eqx.nn.Sequential([eqx.nn.Linear(3, 3, key=key), eqx.nn.Lambda(activation())]), x)
    assert apply.cache_info().traces == 2


COUNTED: dict[str, Callable[[Any], Any]] = {
    "filter_grad": partax.filter_grad,
    "vmap of Equinox": lambda fun: eqx.filter_vmap(fun, axis_size=3, in_axes=None),
    "module": lambda fun: eqx.nn.Lambda(fun),
    "transformed twice": lambda fun: partax.filter_checkpoint(partax.filter_grad(fun)),
}


@pytest.mark.parametrize("wrap", COUNTED.values(), ids=COUNTED)
def test_one_function_that_only_counts_its_traces_under_wrappers_made_anew(wrap: Callable[[Any], Any]) -> None:
    for _ in range(2):  # a function made anew counts its own
        count, log = 0, []

        def fun(x: Any) -> Any:
            nonlocal count
            count += 1
            log.append(x.shape)  # noqa: B023
            return x * 2

        for i in range(3):
            filter_jit(wrap(fun))(jnp.float32(i))
        assert (count, log) == (1, [()])


# --- what is made of a value


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_callable_made_of_an_equal_value_is_the_same_and_of_another_is_not(make: Callable[[Any], Any]) -> None:
    step = filter_jit(lambda fun, x: fun(x))
    step.clear_cache()
    # Another type is another value, at any depth.
    for n, count in [(2, 1), (2, 1), (3, 2), (2, 2), (3, 2), (2.0, 3), (True, 4), (2, 4), (2.0, 4)]:
        assert_same(step(make(n), x), make(n)(x))
        assert step.cache_info().traces == count
        assert_same(filter_jit(make(n))(x), make(n)(x))
        assert filter_jit(make(n)).cache_info().traces == 1
