"""Guards the promise that each program of this folder is told in one way: a module of the user's that makes a function
anew, and changes something that the function can see.

A program is the source of a module. It has

- `make()`, which gives the function anew;
- `arguments()`, which gives what the function is called with after its array, if it is called with more;
- `change()`, which changes something, and `restore()`, if the change goes beyond the module;
- `EVER_OTHER`, if what the function gives is never the same.
"""

import contextlib
import dataclasses
import functools
import gc
import pathlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import partax
import partax.equinox
import partax.nnx
from short_programs import imported

Call = Callable[..., Any]
Load = Callable[[str], types.ModuleType]

# What any program may name; `K`, and the `k` of `o`, are what most of them change.
PRELUDE = """
import abc, array, builtins, calendar, collections, collections.abc, configparser, contextlib, contextvars, copy
import copyreg, ctypes
import dataclasses, datetime, decimal, enum, fractions, functools, gc, glob, importlib, importlib.resources
import inspect, io, itertools, linecache, locale, logging, math, numbers, operator, os, pathlib, queue, random, re
import secrets, sqlite3, struct, sys, tempfile, threading, time, types, typing, uuid, warnings, weakref, zoneinfo
import chex, equinox as eqx, flax, flax.linen as nn, flax.struct, jax, jax.extend, jax.numpy as jnp, jaxtyping
import matplotlib, numpy as np, optax, partax
from decimal import Decimal
from fractions import Fraction
from unittest import mock
from flax import nnx
K = 2.0
class O:
    k = 2.0
    def step(self, x): return x * self.k
o = O()
"""


# The changes that most make.
CHANGES = {"o": "o.k = 3.0", "K": "K = 3.0"}


def program_of(setup: str, function: str, change: str, restore: str = "", arguments: str = "") -> str:
    """A program of what it defines, the function that is made anew, and what changes."""
    return f"""{PRELUDE}{setup}
make = lambda: {function}
arguments = lambda: ({arguments})
def change():
    exec({CHANGES.get(change, change)!r}, globals())
def restore():
    exec({restore!r}, globals())
"""


def parts_of(row: str) -> list[str]:
    """A row of a table is a text, with arrows between its parts."""
    return row.split(" → ")


def source_of(row: str) -> str:
    """A program of what it defines → the value that the array is taken times → what changes → what undoes that."""
    setup, value, *changes = parts_of(row)
    return program_of(setup, f"lambda x: x * {value}", *changes)


def function_of(row: str) -> str:
    """The same of a row that has the function itself in the place of the value."""
    return program_of(*parts_of(row))


Tables = Mapping[str, Mapping[str, str]]


def sources_of(kinds: Tables, source: Callable[[str], str] = source_of) -> dict[str, dict[str, str]]:
    """The programs of several tables, by the names of these and of their rows."""
    return {kind: {name: source(row) for name, row in rows.items()} for kind, rows in kinds.items()}


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Iterator[Load]:
    with contextlib.ExitStack() as stack:

        def loaded(source: str) -> types.ModuleType:
            stack.close()  # undoes what an earlier one has changed
            return stack.enter_context(imported(source, tmp_path))

        yield loaded


class Holder(eqx.Module):
    weight: Any
    fun: Any = eqx.field(static=True)


class Tree(eqx.Module):
    """A pytree that is called."""

    fun: Any

    def __call__(self, *args: Any) -> Any:
        return self.fun(*args)


class Owner:
    """Is called, or its method is, and can be changed."""

    def __init__(self, fun: Any) -> None:
        self.fun = fun

    def __call__(self, *args: Any) -> Any:
        return self.fun(*args)

    step = __call__


@dataclasses.dataclass(frozen=True)
class Frozen(Owner):
    """The same, and cannot."""

    fun: Any


class Named(NamedTuple):
    fun: Any
    __call__ = Owner.__call__


def plain(fun: Any, x: Any, *more: Any) -> Any:
    return fun(x, *more)


def jitted(fun: Any, x: Any, *more: Any) -> Any:
    """By `jax.jit` of the function, or of one around it if it has no hash or is called with more than an array."""
    try:
        hash(fun)
    except TypeError:
        return jax.jit(lambda x: fun(x, *more))(x)
    return jax.jit(lambda x: fun(x, *more))(x) if more else jax.jit(fun)(x)


def in_accelerated_equinox(fun: Any, x: Any, *more: Any) -> Any:
    with partax.equinox.accelerate():
        return eqx.filter_jit(fun)(x, *more)


def of_vmap(fun: Any, x: Any, *more: Any) -> Any:
    return partax.filter_jit(partax.filter_vmap(fun, in_axes=(0, *[None] * len(more))))(x[None], *more)[0]


def static_argument() -> Call:
    return partax.filter_jit(lambda fun, x, *more: fun(x, *more))


def in_a(made: Call) -> Call:
    """The argument of one function, in something that is made for each call."""
    step = static_argument()
    return lambda fun, x, *more: step(made(fun), x, *more)


def as_a(made: Call) -> Call:
    """What is jitted is made of the function."""
    return lambda fun, x, *more: partax.filter_jit(made(fun))(x, *more)


def static_field() -> Call:
    step = partax.filter_jit(lambda holder, *more: holder.fun(holder.weight, *more))
    return lambda fun, x, *more: step(Holder(x, fun), *more)


# How a function made anew comes to partax; each makes what a whole program is called with.
WAYS: dict[str, Callable[[], Call]] = {
    "direct": lambda: as_a(lambda fun: fun),
    "argument": static_argument,
    "partial": lambda: as_a(functools.partial),
    "vmap": lambda: of_vmap,
    "gradient": lambda: as_a(partax.filter_grad),
    "field": static_field,
    "closure": lambda: lambda fun, x, *more: partax.filter_jit(lambda y: fun(y, *more))(x),
    "accelerate": lambda: in_accelerated_equinox,
    "nnx": lambda: lambda fun, x, *more: partax.nnx.jit(fun)(x, *more),
    "identity": lambda: lambda fun, x, *more: partax.filter_jit(fun, callables="identity")(x, *more),
    "partial of jax": lambda: in_a(jax.tree_util.Partial),
    "leaf of a tree": lambda: in_a(Tree),
    "tree that is called": lambda: as_a(Tree),
    "named tuple": lambda: in_a(Named),
    "frozen object": lambda: as_a(Frozen),
    "method of a frozen object": lambda: as_a(lambda fun: Frozen(fun).step),
    "object": lambda: as_a(Owner),
    "method": lambda: as_a(lambda fun: Owner(fun).step),
    "its own call": lambda: as_a(lambda fun: Owner(fun).__call__),
    "method that is made": lambda: as_a(lambda fun: types.MethodType(lambda self, *args: fun(*args), 1)),
    "checkpoint": lambda: as_a(partax.filter_checkpoint),
}
OF_ONE_FUNCTION = {"argument", "field", "partial of jax", "leaf of a tree", "named tuple"}
"""Ways in which what is made anew is the argument of one function: where it is equal for Python, it is equal."""
ALWAYS_TRACED = {"identity", "object", "method", "its own call"}
"""Those of an object that can be changed, or known by identity."""


def answers(module: types.ModuleType, call: Call, is_kept: bool = False) -> list[float]:
    """Two calls of functions made anew, with the change in between; the first is kept or gone before the second."""
    found, kept = [], []
    for change in (False, True):
        if change:
            module.change()
        fun = module.make()
        found.append(float(call(fun, jnp.float32(0.5), *getattr(module, "arguments", tuple)())))
        if is_kept:
            kept.append(fun)
        del fun
        gc.collect(0)
    return found
