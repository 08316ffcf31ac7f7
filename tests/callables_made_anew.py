"""The corpus of callables that are re-created from a value."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from partax._functions.proof import Proof


def unproven(fun: Any) -> str:
    """What of all that a callable reads nobody can prove unchanged; empty if there is nothing."""
    return Proof(fun).reason


def scaled(n: Any) -> Any:
    return lambda x: x * n


def local(n: Any, shift: Any = 0) -> Any:
    """A function with a closure, a default and a keyword default."""

    def fun(x: Any, factor: Any = shift, *, power: Any = shift) -> Any:
        return x * n + factor + power

    return fun


def over(inner: Any) -> Any:
    return lambda x: inner(x) + 1


def recursive(n: Any) -> Any:
    def power(x: Any, left: int = 2) -> Any:
        return x if left == 0 else power(x, left - 1) * n

    return power


def mutual(n: Any) -> Any:
    def even(x: Any, left: int = 2) -> Any:
        return x * n if left == 0 else odd(x, left - 1)

    def odd(x: Any, left: int = 2) -> Any:
        return even(x, left - 1)

    return even


def holding(held: Any) -> Any:
    return lambda x: x + jax.tree.leaves(held)[0]


def attributed(**attributes: Any) -> Any:
    def inner(x: Any) -> Any:
        return x * getattr(inner, "flag", 1)

    vars(inner).update(attributes)
    return inner


def times(x: Any, n: Any) -> Any:
    return x * n


@dataclasses.dataclass(frozen=True)
class Scale:
    n: Any = 2

    def apply(self, x: Any) -> Any:
        return x * self.n


# Each makes an equal callable anew for an equal argument, and another one for another argument. The names of these are
# rows of docs/guides/retraces.md.
SHOWN: dict[str, Callable[[Any], Any]] = {
    "a lambda": scaled,
    "a local function": lambda n: local(n, n),
    "a function in a closure": lambda n: over(scaled(n)),
    "a recursive function": recursive,
    "two functions that call each other": mutual,
    "a function with attributes": lambda n: attributed(flag=n),
    "a closure over a dict": lambda n: holding({"n": n}),
    "a closure over a list in a tuple": lambda n: holding((n, [n])),
    "a partial of a named function": lambda n: functools.partial(times, n=n),
    "a partial of a lambda": lambda n: functools.partial(scaled(n)),
    "a partial of a partial": lambda n: functools.partial(functools.partial(local(n), factor=n), power=n),
    "a partial whose argument is a lambda": lambda n: functools.partial(jax.tree.map, scaled(n)),
    "a method of an equal frozen dataclass": lambda n: Scale(n).apply,
    "`jax.jit` of a lambda": lambda n: jax.jit(scaled(n)),
    "`jax.vmap` of a lambda": lambda n: jax.vmap(scaled(n)),
    "`jax.grad` of a lambda": lambda n: jax.grad(lambda x: jnp.sum(scaled(n)(x))),
    "`jax.checkpoint` of a lambda": lambda n: jax.checkpoint(scaled(n)),
    "`jax.jit` of `jax.vmap` of a partial": lambda n: jax.jit(jax.vmap(functools.partial(times, n=n))),
}
