"""Functions that make a callable anew of a value, for tests of when it is the same one."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import partax
from partax import filter_jit
from partax._guards.walk import written_down


def unproven(fun: Any) -> str:
    """What of all that a callable reads nobody can prove unchanged; empty if there is nothing."""
    _, _, _, what, of_same_objects = written_down((fun,))
    return what or of_same_objects


def scaled(scale: Any, shift: Any = 0) -> Any:
    """A function anew, with a closure, a default and a keyword default."""

    def fun(x: Any, factor: Any = shift, *, power: Any = shift) -> Any:
        return x * scale + factor + power

    return fun


def nested(scale: Any) -> Any:
    inner = scaled(scale)
    return lambda x: inner(x) * 2


def recursive(scale: Any) -> Any:
    def fun(x: Any, n: int = 2) -> Any:
        return x * scale if n == 0 else fun(x, n - 1)

    return fun


def mutually_recursive(scale: Any) -> Any:
    def even(x: Any, n: int = 2) -> Any:
        return x * scale if n == 0 else odd(x, n - 1)

    def odd(x: Any, n: int = 2) -> Any:
        return x if n == 0 else even(x, n - 1)

    return even


def with_attribute(scale: Any) -> Any:
    def fun(x: Any) -> Any:
        return x * fun.scale  # type: ignore[attr-defined]

    fun.scale = scale  # type: ignore[attr-defined]
    return fun


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: Any = 2

    def method(self, x: Any) -> Any:
        return x * self.scale


FROZEN = Frozen()

# Each makes an equal callable anew for an equal argument, and another one for another argument.
MAKERS: dict[str, Callable[[Any], Any]] = {
    "closure": scaled,
    "default": lambda n: scaled(1, n),
    "lambda": lambda n: lambda x: x * n,
    "nested": nested,
    "recursive": recursive,
    "mutually recursive": mutually_recursive,
    "attribute": with_attribute,
    "wraps": lambda n: functools.wraps(len)(scaled(n)),
    "containers": lambda n: scaled({"a": [n, (n, {n})]}["a"][0], shift=0) if n else scaled(n),
    "closure over a list": lambda n: (lambda held: lambda x: x * held[0])([n, [n]]),
    "closure over a dict": lambda n: (lambda held: lambda x: x * held["n"])({"n": n}),
    "partial": lambda n: functools.partial(scaled(n), factor=n),
    "partial of a named function": lambda n: functools.partial(jnp.add, n),
    "jax.jit": lambda n: jax.jit(scaled(n)),
    "jax.jit with options": lambda n: jax.jit(scaled(n), static_argnames="power", inline=True),
    "jax.vmap": lambda n: jax.vmap(scaled(n)),
    "jax.grad": lambda n: jax.grad(lambda x: jnp.sum(scaled(n)(x))),
    "jax.checkpoint": lambda n: jax.checkpoint(scaled(n)),
    "filter_jit": lambda n: filter_jit(scaled(n)),
    "filter_grad": lambda n: partax.filter_grad(lambda x: jnp.sum(scaled(n)(x))),
    "jit of vmap of partial": lambda n: jax.jit(jax.vmap(functools.partial(scaled(n)))),
    "closure over jax.jit": lambda n: (lambda held: lambda x: held(x))(jax.jit(scaled(n))),
    "closure over filter_jit": lambda n: (lambda held: lambda x: held(x))(filter_jit(scaled(n))),
    "closure over containers": lambda n: (lambda held: lambda x: x * held["n"][0])({"n": [n, (n, {n})]}),
    "partial of a library's": lambda n: functools.partial(operator.mul, n),
    "method of a frozen dataclass": lambda n: Frozen(n).method,
    "closure over its method": lambda n: (lambda held: lambda x: held(x) * 2)(Frozen(n).method),
    "closure over a method": lambda n: (lambda held: lambda x: held(x) * n)(FROZEN.method),
}
