"""Guards the promise that static values are one key only if a program cannot tell them apart, at any depth."""

import dataclasses
import enum
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import numpy as np
from retrace_case import HIT, OTHERS_TRACE, OTHERS_WRONG, RAISES, WRONG, Case, X, change, changed, number, recreated

import partax
from counting import seen
from trees import Bag, Colour, Config


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass(eq=False)
class Handle:
    """Compared by identity."""

    number: int


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
    ("another enum member", Colour.RED, Colour.BLUE, "a: static Colour.RED -> Colour.BLUE", {}),
    ("static 1 -> IntEnum of 1", 1, Level.LOW, "a: static int 1 -> static Level.LOW", {"equinox": WRONG}),
    ("frozen dataclass of other values", Config(1), Config(22),
        "a.width: static int 1 -> 22 (2 traces so far: pass jnp.asarray(width))", {}),
    ("frozen dataclass, 1 -> True in it", Config((1,)), Config((True,)), "a.width[0]: static int 1 -> static bool True",
        OTHERS_WRONG),
    ("another class", int, float, "a: class int -> float", {}),
    ("another dtype", np.dtype("float32"), np.dtype("int8"), "a: static dtype('float32') -> dtype('int8')", {}),
    ("a value of another `==`", Fraction(1, 2), Fraction(1, 30), "a: static Fraction(1, 2) -> Fraction(1, 30)", {}),
]  # fmt: skip

# The same, of which the second is made anew and equal.
EQUAL: list[tuple[str, Callable[[], Any], dict[str, Any]]] = [
    ("a NaN made anew", lambda: float("nan"), OTHERS_TRACE),
    ("a frozen dataclass made anew", lambda: Config((1, "a")), {}),
    ("a frozen dataclass of a NaN made anew", lambda: Config(float("nan")), OTHERS_TRACE),
    ("a frozenset made anew", lambda: frozenset({1, "a"}), {}),
    ("a value with its own `==` made anew", lambda: Fraction(1, 3), {}),
    ("a set made anew", lambda: {1, 2}, {"jax": RAISES, "equinox": RAISES}),
    ("a bytearray made anew", lambda: bytearray(b"ab"), {"jax": RAISES, "equinox": RAISES}),
    ("`partax.tree.Static` of a text made anew", lambda: partax.tree.Static("".join(["a", "b"])), {}),
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
        recreated("a", "`__eq__`"), static=True),
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


CASES += [
    changed("a static set is changed in place", "a: static {1} -> {1, 2}", lambda held: held,
        lambda held: held.add(2), {1}, lambda x, a: x + len(a), static=True, others={"jax": RAISES, "equinox": RAISES}),
    changed("aux data: a list is changed in place", "a.<aux data>: static list [1] -> [1, 2]",
        lambda label: Bag(X, label=label), lambda label: label.append(2), [1],
        lambda x, a: x + len(a.label)),
    changed("aux data: a dict in a dict is changed in place",
        "a.<aux data>['b']['c']: static int 1 -> 2 (2 traces so far: it is aux data of `a`: make it a child that is an "
        "array)", lambda label: Bag(X, label=label), lambda label: label["b"].update(c=2), {"b": {"c": 1}},
        lambda x, a: x + a.label["b"]["c"]),
]  # fmt: skip
