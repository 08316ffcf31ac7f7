"""Guards the promise that modules and optimisers made anew do not retrace, and that a changed one names its field."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from cases_functions import anew
from retrace_case import (
    HIT,
    OTHERS_TRACE,
    OTHERS_WRONG,
    RAISES,
    TRACES,
    Case,
    Library,
    X,
    change,
    number,
    played,
    recreated,
    static_field,
)

from counting import seen
from trees import Cell


class Net(eqx.Module):
    weight: Any
    bias: Any = None
    activation: Any = eqx.field(static=True, default=jnp.tanh)
    width: Any = eqx.field(static=True, default=3)

    def __call__(self, x: Any) -> Any:
        return self.activation(x * self.weight) * self.width


class Counted(eqx.Module):
    weight: Any

    def __call__(self, x: Any) -> Any:
        return seen(x) * self.weight

    def apply(self, x: Any) -> Any:
        return seen(x) * self.weight


class Stack(eqx.Module):
    layers: list[Net]
    rate: Any = 0.5


def leaky(slope: Any) -> Any:
    return lambda x: jnp.where(x > 0, x, x * slope)


def schedule(rate: Any) -> Any:
    return optax.linear_schedule(rate, 0.0, 10)


def updated(x: Any, optimiser: Any) -> Any:
    return optimiser.update(x, optimiser.init(x), x)[0]


CASES: list[Case] = [
    change("another module with other values", lambda x, a: a(seen(x)), 1.0, 2.0, make=lambda w: Net(X * w)),
    change("a static field of a module, 3 -> 3.0", lambda x, a: seen(x) + len(repr(a.width)), Net(X, width=3),
        Net(X, width=3.0), "a.width: static int 3 -> static float 3.0", **OTHERS_WRONG),
    change("a number that is a field of a module", lambda x, a: seen(x) * a.rate, Stack([], 0.5), Stack([], 0.25),
        number("a.rate", "static float 0.5 -> 0.25", "rate"), jax=HIT),
    change("a static field of a module in a list", lambda x, a: a.layers[1](seen(x)), 3, 4,
        static_field("a.layers[1]", "width", "static int 3 -> 4"),
        make=lambda width: Stack([Net(X), Net(X, width=width)], jnp.ones(()))),
    change("a module with a lambda as activation, made anew", lambda x, a: a(seen(x)), 0.5, 0.5,
        make=lambda slope: Net(X, activation=leaky(slope)), **OTHERS_TRACE),
    change("a module with a lambda as activation, with another slope", lambda x, a: a(seen(x) - 3), 0.5, 0.25,
        recreated("a.activation", "'slope'", "0.5 to 0.25"),
        make=lambda slope: Net(X, activation=leaky(slope))),
    change("an `eqx.nn.MLP` made anew with a lambda as activation", lambda x, a: jax.vmap(a)(seen(x)), 0.5, 0.5,
        make=lambda slope: eqx.nn.MLP(3, 2, 4, 1, activation=leaky(slope), key=jax.random.key(0)), jax=RAISES,
        equinox=TRACES),
    change("a registered dataclass with another static field", lambda x, a: seen(x) * a.weight + len(a.mode), Cell(X),
        Cell(X, mode="other"), "a.mode: static str 'same' -> 'other'"),
    *(
        change(name, lambda x, a, use=use: use(seen(x), a), 0.5, 0.5, make=make, static=True, **OTHERS_TRACE)
        for name, use, make in (
            ("`optax.adam(1e-3)` made anew", updated, lambda _: optax.adam(1e-3)),
            ("optax optimiser with a schedule made anew", updated, lambda rate: optax.sgd(schedule(rate))),
            ("optax schedule made anew", lambda x, a: x * a(1), schedule),
        )
    ),
]  # fmt: skip


CASES += [
    anew("a module, made and wrapped anew", lambda library, w: library.jit(Counted(X * w)), values=(1, 2), jax=None),
    anew("a method of a module that is made anew, wrapped", lambda library, w: library.jit(Counted(X * w).apply),
        values=(1, 2), jax=None),
]  # fmt: skip


@CASES.append
@played(
    "a jitted method of a module with another static field",
    "apply: trace 2, because " + static_field("self", "width", "static int 3 -> 4"),
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    class Jitted(Net):
        @library.jit
        def apply(self, x: Any) -> Any:
            return seen(x) * self.width

    for n in (3, 4):
        yield lambda n=n: Jitted(X, width=n).apply(X)
