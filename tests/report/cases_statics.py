"""Guards the promise that static values are one key only if a program cannot tell them apart, at any depth."""

from __future__ import annotations

import dataclasses
import enum
import fractions
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from retrace_case import HIT, OTHERS_TRACE, OTHERS_WRONG, RAISES, WRONG, Case, Library, X, change, number, played

import partax
from counting import seen
from trees import Bag, Colour, Config


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass(eq=False)
class Handle:
    """Compared by identity."""

    number: int


class Version:
    """Compared by value, with its own `==` and hash."""

    def __init__(self, text: str):
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Version({self.text})"


def showing(case: str) -> Any:
    """A function of its own for a case, whose result tells the text of `a`."""
    return lambda x, a: seen(x) + len(repr(a)) + 0 * len(case)


# (what changes, before, now, the reason, and where jax.jit and Equinox differ) of a static argument `a` whose text is
# in the result.
VALUES: list[tuple[str, Any, Any, str | None, dict[str, Any]]] = [
    ("another static int", 7, 18, number("a", "static int 7 -> 18"), {}),
    ("static 1 -> True", 1, True, "a: static int 1 -> static bool True", {"equinox": WRONG}),
    ("static 1 -> 1.0", 1, 1.0, "a: static int 1 -> static float 1.0", {"equinox": WRONG}),
    ("static 0.0 -> -0.0", 0.0, -0.0, number("a", "static float 0.0 -> -0.0"), OTHERS_WRONG),
    ("static `2j` -> `-0.0 + 2j`", 2j, complex(-0.0, 2), number("a", "static complex 2j -> (-0+2j)"), OTHERS_WRONG),
    ("static True -> False", True, False, "a: static bool True -> False", {}),
    ("another static text", "train", "evaluate", "a: static str 'train' -> 'evaluate'", {}),
    ("static text -> bytes", "train", b"train", "a: static str 'train' -> static bytes b'train'", {}),
    ("another enum member", Colour.RED, Colour.BLUE, "a: static Colour.RED -> Colour.BLUE", {}),
    ("static 1 -> IntEnum of 1", 1, Level.LOW, "a: static int 1 -> static Level.LOW", {"equinox": WRONG}),
    ("static int -> None", 1, None, "a: static int 1 -> None", {}),
    ("frozen dataclass of other values", Config(1), Config(22),
        "a.width: static int 1 -> 22 (2 traces so far: pass jnp.asarray(width))", {}),
    ("frozen dataclass, 1 -> True in it", Config((1,)), Config((True,)), "a.width[0]: static int 1 -> static bool True",
        OTHERS_WRONG),
    ("frozenset of other items", frozenset({1}), frozenset({1, 2}), "a: static frozenset({1}) -> frozenset({1, 2})",
        {}),
    ("another class", int, float, "a: class int -> float", {}),
    ("another dtype", np.dtype("float32"), np.dtype("int8"), "a: static dtype('float32') -> dtype('int8')", {}),
    ("another range", range(3), range(30), "a: static range(0, 3) -> range(0, 30)", {}),
    ("a value of another `==`", Version("1"), Version("22"), "a: static Version(1) -> Version(22)", {}),
]  # fmt: skip

# The same, of which the second is made anew and equal.
EQUAL: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    ("a NaN made anew", lambda: float("nan"), OTHERS_TRACE),
    ("a text made anew", lambda: "".join(["train", "ing"]), {}),
    ("a large int made anew", lambda: int("9" * 30), {}),
    ("an enum member by its value", lambda: Colour(1), {}),
    ("a frozen dataclass made anew", lambda: Config((1, "a")), {}),
    ("a frozen dataclass of a NaN made anew", lambda: Config(float("nan")), OTHERS_TRACE),
    ("a frozenset made anew", lambda: frozenset({1, "a"}), {}),
    ("a value with its own `==` made anew", lambda: Version("1"), {}),
    ("a Fraction made anew", lambda: fractions.Fraction(1, 3), {}),
    ("a set made anew", lambda: {1, 2}, {"jax": RAISES, "equinox": RAISES}),
    ("a bytearray made anew", lambda: bytearray(b"ab"), {"jax": RAISES, "equinox": RAISES}),
    ("`partax.Static` of a text made anew", lambda: partax.Static("".join(["a", "b"])), {}),
]

CASES: list[Case] = [
    *(
        change(name, showing(name), before, now, reason, static=True, **others)
        for name, before, now, reason, others in VALUES
    ),
    *(
        change(name, showing(name), 0, 0, make=lambda _, m=make: m(), static=True, **others)
        for name, make, others in EQUAL
    ),
    change("an object compared by identity made anew", lambda x, a: seen(x) + a.number, Handle(1), Handle(1),
        "a: another static Handle(number=1) with the same text", static=True),
    change("one of 100 numbers in a list", lambda x, a: seen(x) + a[57], list(range(100)),
        [*range(57), -1, *range(58, 100)], number("a[57]", "static int 57 -> -1"), jax=HIT),
    change("static argument of a Partial", lambda x, a: a(seen(x)), 2, 3,
        number("a[<flat index 1>]['n']", "static int 2 -> 3"), make=lambda n: jax.tree_util.Partial(times, n=n),
        jax=HIT),
    change("aux data: another text", lambda x, a: seen(x) + len(a.label), Bag(X, label="b"), Bag(X, label="cd"),
        "a.<aux data>: static str 'b' -> 'cd'"),
    change("aux data: `(1,)` -> `(True,)`", lambda x, a: seen(x) + len(repr(a.label)), Bag(X, label=(1,)),
        Bag(X, label=(True,)), "a.<aux data>[0]: static int 1 -> static bool True", **OTHERS_WRONG),
    change("aux data: a list made anew", lambda x, a: seen(x) + len(a.label), [1], [1],
        make=lambda label: Bag(X, list(label))),
    change("aux data: a FlatSpec made anew", lambda x, a: partax.flat_combine(a.label, {"['w']": seen(x)})["w"] * 2, 0,
        0, make=lambda _: Bag(X, label=partax.flat_partition({"w": X, "n": 2}, partax.is_array, rest="static")[0])),
]  # fmt: skip


def times(x: Any, n: Any) -> Any:
    return x * n


@CASES.append
@played("a static set is changed in place", "f: trace 2, because a: static {1} -> {1, 2}", jax=RAISES, equinox=RAISES)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def f(x: Any, a: Any) -> Any:
        return seen(x) + len(a)

    f, held = library.jit(f, static=("a",)), {1}
    yield lambda: f(X, held)
    held.add(2)
    yield lambda: f(X, held)


@CASES.append
@played(
    "aux data: a list is changed in place",
    "f: trace 2, because a.<aux data>: static list [1] -> [1, 2]",
    **OTHERS_WRONG,
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def f(x: Any, a: Any) -> Any:
        return seen(x) + len(a.label)

    f, bag = library.jit(f), Bag(X, label=[1])
    yield lambda: f(X, bag)
    bag.label.append(2)
    yield lambda: f(X, bag)


@CASES.append
@played(
    "aux data: a dict in a dict is changed in place",
    "f: trace 2, because a.<aux data>['b']['c']: static int 1 -> 2 (2 traces so far: it is aux data of `a`: make it a "
    "child that is an array)",
    **OTHERS_WRONG,
)
def _(library: Library) -> Iterator[Callable[[], Any]]:
    def f(x: Any, a: Any) -> Any:
        return seen(x) + a.label["b"]["c"]

    f, bag = library.jit(f), Bag(X, label={"b": {"c": 1}})
    yield lambda: f(X, bag)
    bag.label["b"]["c"] = 2
    yield lambda: f(X, bag)
