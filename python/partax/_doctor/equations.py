"""All equations of a program in order, those of inner programs included, each with how it is nested."""

import functools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from partax._doctor.lines import Line, grouped, nearest_line
from partax._jax import programs
from partax._pytree.short_text import array_text

# Whose inner program is compiled once, however often it runs, and how a finding calls it.
LOOPS = {"scan": "scan", "while": "while loop"}


def held_programs(eqn: Any) -> Iterator[tuple[str, Any, Any]]:
    """As of `partax._jax.programs`, but of a linear solve only the solve: the others are not compiled."""
    solve = getattr(eqn.params.get("jaxprs"), "solve", None)
    if solve is not None:
        yield "jaxprs", solve, solve.jaxpr
    else:
        yield from programs.held_programs(eqn)


def inner_jaxprs(eqn: Any) -> Iterator[Any]:
    return (jaxpr for _, _, jaxpr in held_programs(eqn))


class Equations:
    """All equations of a program, each before those inside of it.

    An inner program that several equations have in common (a `jax.jit` called again) is there for each of them: it is
    inlined, and compiled, as often. There are lists and no objects of ours for each equation: a program may have
    100,000, and the garbage collector would walk them all again and again.
    """

    def __init__(self, jaxpr: Any) -> None:
        self.eqns: list[Any] = []
        self.parents: list[int] = []  # the equation that each is inside of, or -1
        self.depths: list[int] = []  # how many each is inside of
        self.times: list[int] = []  # how often each runs in one run of the program; a while loop counts as once
        # By primitive and the types of its parameters: most hold no program, and looking into each would take longest.
        self._holds_program: dict[tuple[Any, ...], bool] = {}
        self._add(jaxpr, -1, 0, 1)
        self.names = [eqn.primitive.name for eqn in self.eqns]

    def _add(self, jaxpr: Any, parent: int, depth: int, times: int) -> None:
        eqns, holds_program = self.eqns, self._holds_program
        for eqn in jaxpr.eqns:
            eqns.append(eqn)
            params = eqn.params
            key = (eqn.primitive, *map(type, params.values())) if params else None
            if key is not None and holds_program.get(key, True):
                inner = list(inner_jaxprs(eqn))
                holds_program.setdefault(key, bool(inner))
                if inner:
                    self._place(parent, depth, times)
                    at, turns = len(eqns) - 1, int(params["length"]) if eqn.primitive.name == "scan" else 1
                    for it in inner:
                        self._add(it, at, depth + 1, times * turns)
        self._place(parent, depth, times)

    def _place(self, parent: int, depth: int, times: int) -> None:
        """Of the equations since the last time: all at once, as there may be many."""
        count = len(self.eqns) - len(self.parents)
        self.parents += [parent] * count
        self.depths += [depth] * count
        self.times += [times] * count

    def named(self, *names: str) -> list[int]:
        """Where these primitives are, in order of the names."""
        return [i for name in names for i in self._by_name.get(name, ())]

    @functools.cached_property
    def _by_name(self) -> dict[str, list[int]]:
        return grouped(range(len(self)), self.names.__getitem__)

    def held(self) -> Iterator[tuple[str, Any, Any]]:
        """All programs inside of equations, as `held_programs` has them."""
        return (held for i in set(self.parents) if i >= 0 for held in held_programs(self.eqns[i]))

    @functools.cached_property
    def largest(self) -> int:
        avals = [var.aval for i in self.first_of_tokens for var in self.eqns[i].outvars]
        return max((math.prod(it.shape) for it in avals if hasattr(it, "shape")), default=0)

    def around(self, index: int) -> Iterator[int]:
        """The equations that an equation is inside of, the innermost first."""
        while (index := self.parents[index]) >= 0:
            yield index

    def names_around(self, index: int) -> set[str]:
        return {self.names[i] for i in self.around(index)}

    def line(self, index: int) -> Line:
        """The user's line of an equation; of what calls it where it has none, as inside of jax's own functions."""
        return nearest_line(self.eqns[at] for at in (index, *self.around(index)))

    def by_line(self, indices: Iterable[int]) -> dict[Line, list[int]]:
        return grouped(indices, self.line)

    def inside(self, index: int) -> range:
        end = index + 1
        while end < len(self) and self.depths[end] > self.depths[index]:
            end += 1
        return range(index + 1, end)

    def outermost(self, start: int, length: int) -> list[int]:
        """The indices of the equations from one on, so many, that are not inside of others of these."""
        depth = min(self.depths[start : start + length])
        return [i for i in range(start, start + length) if self.depths[i] == depth]

    @functools.cached_property
    def tokens(self) -> np.ndarray:
        """A number for each equation, the same for those of one primitive, depth and type of results; from 0 on."""
        numbers: defaultdict[Hashable, int] = defaultdict()
        numbers.default_factory = numbers.__len__
        tokens: list[int] = []
        for name, depth, eqn in zip(self.names, self.depths, self.eqns, strict=True):
            avals = [var.aval for var in eqn.outvars]
            types = [(getattr(it, "shape", None), getattr(it, "dtype", None)) for it in avals]
            tokens.append(numbers[name, depth, *types])
        return np.asarray(tokens, dtype=np.int64)

    @functools.cached_property
    def first_of_tokens(self) -> list[int]:
        first = np.empty(self.tokens.max(initial=-1) + 1, dtype=np.int64)
        first[self.tokens[::-1]] = np.arange(len(self) - 1, -1, -1)  # the last that is written stays
        return first.tolist()

    @functools.cached_property
    def result_bytes(self) -> int:
        """The bytes of all results together, as if none were ever let go."""
        sizes = (sum(bytes_of(var.aval) for var in self.eqns[i].outvars) for i in self.first_of_tokens)
        return sum(size * count for size, count in zip(sizes, np.bincount(self.tokens).tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.eqns)


class ScanParts(NamedTuple):
    """How many operands of a scan are these."""

    consts: int
    carries: int
    xs: int  # that it goes along


def scan_parts(eqn: Any) -> ScanParts:
    """Told by the ranks of its body's operands: each jax has the numbers in parameters of its own."""
    body = next(inner_jaxprs(eqn))

    def along(outer: list[Any], inner: list[Any]) -> int:
        return sum(len(a.aval.shape) == len(b.aval.shape) + 1 for a, b in zip(outer, inner, strict=True))

    xs, ys = along(eqn.invars, body.invars), along(eqn.outvars, body.outvars)
    carries = len(eqn.outvars) - ys
    return ScanParts(len(eqn.invars) - carries - xs, carries, xs)


def type_of(aval: Any) -> tuple[Any, ...]:
    return aval.shape, aval.dtype


def traced_type(aval: Any) -> tuple[Any, ...]:
    """The same, and whether that is a weak type: for another one a function is traced again."""
    return (*type_of(aval), bool(getattr(aval, "weak_type", False)))


def type_text(aval: Any) -> str:
    return ("weak " if getattr(aval, "weak_type", False) else "") + array_text(aval)


def bytes_of(aval: Any) -> int:
    """How many bytes an array of this type takes; 0 of what is no array."""
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or dtype is None or not all(isinstance(length, int) for length in shape):
        return 0
    return math.prod(shape) * int(getattr(dtype, "itemsize", 4))
