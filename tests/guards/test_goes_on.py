"""Guards the promise that a function made anew does not retrace where all that it reads is proven to be as it was."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
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
from flax import nnx
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, jaxtyped

import partax
from partax import _core

x = jnp.ones(3)
CASES: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {}


def case(name: str, make: Callable[[], Any], *arguments: Any) -> None:
    """A function that `make` gives anew, and what it is called with, if not with an array."""
    CASES[name] = make, arguments or (x,)


SCALE = 2.0


def helper(x):
    return x * SCALE


case("lambda", lambda: lambda x: x * 2)
case("helper", lambda: lambda x: helper(x))


def mk():
    def f(x):
        return jnp.sin(x) + helper(x)

    return f


case("local", mk)
case("partial", lambda: functools.partial(lambda a, x: a * x, 3))
case("partial jnp", lambda: functools.partial(jnp.power, x))
case("grad", lambda: jax.grad(lambda x: (x**2).sum()))
case("vmap", lambda: jax.vmap(lambda x: x**2))
case("checkpoint", lambda: jax.checkpoint(lambda x: x**2))
case("value_and_grad", lambda: jax.value_and_grad(lambda x: (x**2).sum()))
case("jit", lambda: jax.jit(lambda x: x**2))
case("jit sin in lambda", lambda: (lambda g: lambda x: g(x))(jax.jit(jnp.sin)))
case("filter_grad", lambda: partax.filter_grad(lambda x: (x**2).sum()))
case("filter_vmap", lambda: partax.filter_vmap(lambda x: (x**2).sum()))
case("filter_vmap axes", lambda: partax.filter_vmap(lambda x: (x**2).sum(), in_axes=0))
case("eqx.filter_grad", lambda: eqx.filter_grad(lambda x: (x**2).sum()))
case("scan", lambda: lambda x: lax.scan(lambda c, y: (c + y, y), 0.0, x))
case("cond", lambda: lambda x: lax.cond(x[0] > 0, lambda y: y, lambda y: -y, x))
case("math", lambda: lambda x: x * math.sqrt(2) * math.pi + np.float32(2) * np.pi)
case("np", lambda: lambda x: x * np.arange(3) * np.sqrt(2.0))
case("nn", lambda: lambda x: jax.nn.relu(x) + jax.nn.softmax(x) + jax.nn.gelu(x))
case("random", lambda: lambda x: jax.random.normal(jax.random.key(0), (3,)))
case("einops", lambda: lambda x: einops.rearrange(x, "a -> a 1"))


def mk():
    @jaxtyped(typechecker=beartype)
    def f(x: Float[Array, n]) -> Float[Array, n]:
        return x * 2

    return f


case("jaxtyped", mk)


def mk():
    @beartype
    def f(x: jax.Array) -> jax.Array:
        return x * 2

    return f


case("beartype", mk)


def mk():
    def f(x):
        y: Float[Array, n] = x * 2
        return y

    return f


case("jaxtyping annotation", mk)
params = {"w": jnp.ones(3)}


def opt(mk):
    def m():
        o = mk()
        return lambda g: o.update(g, o.init(params), params)

    return m


for n in [
    "adam",
    "sgd",
    "adamw",
    "rmsprop",
    "lamb",
    "lion",
    "adagrad",
    "adabelief",
    "nadam",
    "radam",
    "yogi",
    "sm3",
    "fromage",
    "novograd",
    "adafactor",
]:
    case("optax." + n, opt(lambda n=n: getattr(optax, n)(1e-3)), params)
S = {
    "constant": lambda: optax.constant_schedule(1e-3),
    "linear": lambda: optax.linear_schedule(1e-2, 0.0, 100),
    "poly": lambda: optax.polynomial_schedule(1e-2, 0.0, 2, 100),
    "exp": lambda: optax.exponential_decay(1e-2, 10, 0.9),
    "cosine": lambda: optax.cosine_decay_schedule(1e-2, 100),
    "piece": lambda: optax.piecewise_constant_schedule(1e-2, {10: 0.5}),
    "pieceint": lambda: optax.piecewise_interpolate_schedule("linear", 1e-2, {10: 0.5}),
    "warmcos": lambda: optax.warmup_cosine_decay_schedule(0.0, 1e-2, 10, 100),
    "warmexp": lambda: optax.warmup_exponential_decay_schedule(0.0, 1e-2, 10, 100, 0.9),
    "join": lambda: optax.join_schedules([optax.constant_schedule(1.0), optax.constant_schedule(2.0)], [10]),
    "sgdr": lambda: optax.sgdr_schedule([{"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 5, "decay_steps": 10}]),
    "cos1": lambda: optax.cosine_onecycle_schedule(100, 1.0),
    "lin1": lambda: optax.linear_onecycle_schedule(100, 1.0),
    "warmconst": lambda: optax.warmup_constant_schedule(0.0, 1.0, 10),
}
for n, m in S.items():
    case("sched " + n, opt(lambda m=m: optax.sgd(m())), params)
case("chain", opt(lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))), params)
case(
    "multi_transform",
    opt(lambda: optax.multi_transform({"a": optax.adam(1.0), "b": optax.set_to_zero()}, {"w": "a"})),
    params,
)
case("inject", opt(lambda: optax.inject_hyperparams(optax.adam)(1e-3)), params)
key = jax.random.key(0)


class Net(eqx.Module):
    w: jax.Array
    act: typing.Callable = eqx.field(static=True)

    def __call__(self, x):
        return self.act(self.w * x) * SCALE


class Net2(eqx.Module):
    layers: list

    def __init__(self):
        self.layers = [eqx.nn.Linear(3, 3, key=key), jax.nn.relu]

    @jax.named_scope("net")
    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


case("arg user's Net", lambda: lambda m, x: m(x), Net(x, jax.nn.relu), x)
case("arg user's Net2", lambda: lambda m, x: m(x), Net2(), x)
case("arg MLP", lambda: lambda m, x: m(x), eqx.nn.MLP(3, 3, 4, 2, key=key), x)
case("callable Net", lambda: Net(x, jax.nn.relu))
case("callable MLP", lambda: eqx.nn.MLP(3, 3, 4, 2, activation=lambda x: x * 2, key=key))


class N(nnx.Module):
    def __init__(self, rngs):
        self.l = nnx.Linear(3, 3, rngs=rngs)
        self.act = nnx.relu

    def __call__(self, x):
        return self.act(self.l(x))


case("nnx arg", lambda: lambda m, x: m(x), N(nnx.Rngs(0)), x)


@dataclasses.dataclass(frozen=True)
class Cfg:
    lr: float = 2.0
    name: str = "a"

    def scale(self, x):
        return x * self.lr


cfg = Cfg()
case("frozen closure", lambda: (lambda c: lambda x: x * c.lr)(Cfg()))
case("frozen method", lambda: (lambda c: lambda x: c.scale(x))(Cfg()))
case("frozen bound", lambda: Cfg().scale)


class NT(typing.NamedTuple):
    a: int
    b: float


case("namedtuple", lambda: (lambda c: lambda x: x * c.b)(NT(1, 2.0)))


class E(enum.Enum):
    A = 1
    B = 2


class IE(enum.IntEnum):
    A = 1
    B = 2


case("enum", lambda: lambda x: x * E.A.value)
case("intenum", lambda: (lambda m: lambda x: x * m)(IE.A))
case("enum cell", lambda: (lambda m: lambda x: x * m.value)(E.A))
for nme, val in {
    "dtype": np.dtype("float32"),
    "jdt": jnp.float32,
    "bf": jnp.bfloat16,
    "sl": slice(0, 1),
    "rg": range(3),
    "ps": P("x"),
    "mesh": Mesh(np.array(jax.devices()), ("x",)),
    "sds": jax.ShapeDtypeStruct((3,), jnp.float32),
    "arr": x,
    "tup": (1, (2, "a")),
    "dic": {"a": [1, 2]},
    "st": {1, 2},
    "fs": frozenset("ab"),
    "npf": np.float32(2),
}.items():
    case("cell " + nme, lambda val=val: (lambda v: lambda x: (v, x * 2)[1])(val))


def mk():
    import jax.numpy as jj

    return lambda x: jj.sin(x)


case("cell jnp", mk)


def mk():
    def f(x):
        import jax.numpy as jj
        from jax import lax as ll

        return ll.abs(jj.sin(x))

    return f


case("import in body", mk)


@dataclasses.dataclass
class D:
    a: float

    def m(self):
        return self.a * 2


class PC:
    def __init__(self, a):
        self.a = a

    def m(self):
        return self.a * SCALE


case("construct dataclass", lambda: lambda x: D(x).m())
case("construct class", lambda: lambda x: PC(x).m())
case("construct eqx", lambda: lambda x: Net(x, jax.nn.relu)(x))
case("defaults", lambda: lambda x, n=2, k=(1, 2): x * n)
case("getattr", lambda: (lambda c: lambda x: x * c.lr)(Cfg()))
case("getattr def", lambda: (lambda c: lambda x: x * getattr(c, "lr", 3))(Cfg()))
case("comprehension", lambda: lambda x: sum([x * i for i in range(3)] + list({1, 2})) + sum(k for k in (1, 2)))


def deco(f):
    @functools.wraps(f)
    def w(*a, **k):
        return f(*a, **k)

    return w


case("wraps", lambda: deco(lambda x: x * 2))


@jax.custom_jvp
def cj(x):
    return jnp.sin(x)


cj.defjvp(lambda p, t: (cj(p[0]), t[0]))


@jax.custom_vjp
def cv(x):
    return jnp.sin(x)


cv.defvjp(lambda x: (cv(x), x), lambda r, g: (g,))
case("custom_jvp", lambda: lambda x: cj(x))
case("custom_vjp", lambda: lambda x: jax.grad(lambda y: cv(y).sum())(x))
case("tree map", lambda: lambda x: jax.tree.map(lambda y: y * 2, {"a": x}))
case("policy", lambda: jax.checkpoint(lambda x: x**2, policy=jax.checkpoint_policies.dots_saveable))
case("jnp consts", lambda: lambda x: x * jnp.pi + jnp.inf)
case("partition", lambda: lambda x: partax.combine(*partax.partition({"a": x}, partax.is_array)))
case("eqx.partition", lambda: lambda x: eqx.combine(*eqx.partition({"a": x}, eqx.is_array)))
case("tree_at", lambda: lambda x: eqx.tree_at(lambda t: t["a"], {"a": x}, x * 2))
case("f-string/assert", lambda: lambda x: (print(f"{x.shape}") if x.shape == (4,) else None, x)[1])
case("raise", lambda: lambda x: x if x.ndim == 1 else (_ for _ in ()).throw(ValueError("no")))
case("dict arg", lambda: lambda d: d["a"] * d["n"], {"a": x, "n": 3, "f": jax.nn.relu})
ns = {}
src = "def f(x):\n    return jnp.sin(x)*SC\n"


def mk():
    g = globals()
    g["SC"] = 2.0
    exec(src, g)
    return g["f"]


case("cell again", mk)
case("x.at", lambda: lambda x: x.at[0].set(2.0))


def ctx(x):
    with jax.named_scope("a"):
        return x * 2


@pytest.mark.parametrize(("make", "arguments"), CASES.values(), ids=CASES)
def test_nothing_is_traced_again(make: Callable[[], Any], arguments: tuple[Any, ...]) -> None:
    kept = []
    for _ in range(3):
        kept.append(partax.filter_jit(make()))
        kept[-1](*arguments)
    assert partax.filter_jit(make()).cache_info().traces == 1, _core.unproven(make())


OPTIMIZERS = {**S, "adam": lambda: 1e-3}


@pytest.mark.parametrize("rate", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_made_anew_as_an_argument(rate: Callable[[], Any]) -> None:
    step = partax.filter_jit(lambda optimizer, params, state: optimizer.update(params, state, params))
    step.clear_cache()  # the same function has had other optimizers
    for _ in range(3):
        optimizer = optax.adam(rate())
        step(optimizer, params, optimizer.init(params))
    assert step.cache_info().traces == 1


@pytest.mark.parametrize("activation", [lambda: lambda x: jax.nn.relu(x) * 2, lambda: jax.jit(jnp.sin)])
def test_a_module_made_anew_with_a_function_of_its_own(activation: Callable[[], Any]) -> None:
    apply = partax.filter_jit(lambda model, x: model(x))
    apply.clear_cache()
    for _ in range(3):
        apply(eqx.nn.MLP(3, 3, 4, 2, activation=activation(), key=key), x)
        apply(eqx.nn.Sequential([eqx.nn.Linear(3, 3, key=key), eqx.nn.Lambda(activation())]), x)
    assert apply.cache_info().traces == 2
