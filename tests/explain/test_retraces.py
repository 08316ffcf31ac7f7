"""Guards the promise that a retrace has one line, which names where the call differs, and from what to what."""

import dataclasses
import enum
import functools
import itertools
import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import partax
from partax import filter_jit
from trees import Bag, Cell, Config

X = jnp.ones((2, 3))
one, three = jnp.ones(()), jnp.ones(3)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


def scaled(n: Any) -> Any:
    return lambda x: x * n


def local(n: Any, shift: Any = 0) -> Any:
    """A function with a closure, a default and a keyword default."""

    def fun(x: Any, factor: Any = shift, *, power: Any = shift) -> Any:
        return x * n + factor + power

    return fun


def over(inner: Any) -> Any:
    return lambda x: inner(x) + 1


def holding(held: Any) -> Any:
    return lambda x: x + jax.tree.leaves(held)[0]


def attributed(**attributes: Any) -> Any:
    def inner(x: Any) -> Any:
        return x * getattr(inner, "flag", 1)

    vars(inner).update(attributes)
    return inner


@dataclasses.dataclass(frozen=True)
class Scale:
    n: Any = 2

    def apply(self, x: Any) -> Any:
        return x * self.n


@dataclasses.dataclass(eq=False)
class Handle:
    """Compared by identity."""

    number: int


class Net(eqx.Module):
    weight: Any
    activation: Any = eqx.field(static=True, default=jnp.tanh)
    width: Any = eqx.field(static=True, default=3)
    rate: Any = None


_numbers = itertools.count()


def new_function(**more: Any) -> Any:
    """A compiled function of code that no other one has, so that their traces are no earlier ones of it."""
    space: dict[str, Any] = {}
    exec(f"def f(x, a=None): return x, {next(_numbers)}", space)
    return filter_jit(space["f"], **more)


def reason_of(before: Any, now: Any, **more: Any) -> str:
    """Why a function of `x` and `a` is traced for a second value of `a`."""
    f = new_function(**more)
    for value in (before, now, before, now):
        f(X, value)
    first, second = f.report().traces
    assert first.reason == "the first"
    return second.reason


# (before, now, what the reason tells) of one argument `a`.
ARRAYS: dict[str, tuple[Any, Any, str]] = {
    "shape": (jnp.ones((4, 6)), jnp.ones((4, 5)), "a: float32[4,6] -> float32[4,5]"),
    "dtype": (three, three.astype("bfloat16"), "a: float32[3] -> bfloat16[3]"),
    "weak type": (jnp.asarray(2.0), jnp.float32(2), "a: weak float32 -> float32"),
    "key": (jax.random.key(0), jax.random.key(0, impl="rbg"), "a: key<fry> -> key<rbg>"),
    "None": (None, one, "a: None -> float32"),
    "a number": (1.0, np.float32(1), "a: static float 1.0 -> float32"),
    "a text": ({"mode": one}, {"mode": "fast"}, "a['mode']: float32 -> static str 'fast'"),
}
STRUCTURES: dict[str, tuple[Any, Any, str]] = {
    "list": ([one], [one, one], "a: list of 1 -> list of 2"),
    "kind": ([], {}, "a: list of 0 -> dict of 0"),
    "subclass": ({"b": one}, defaultdict(list, b=one), "a: dict of 1 -> defaultdict of 1"),
    "new key": ({"b": one}, {"b": one, "c": [one]}, "a['c']: list of 1, which was not there"),
    "lost key": ({"b": one, "c": one}, {"b": one}, "a['c']: float32, which is there no more"),
    "key of another type": ({1: one}, {True: one}, "a[True]: float32, which was not there"),
    "order": (OrderedDict(b=one, c=one), OrderedDict(c=one, b=one), "in the order 'b', 'c' -> OrderedDict in"),
}
STATICS: dict[str, tuple[Any, Any, str]] = {
    "int": (7, 18, "a: static int 7 -> 18"),
    "bool": (1, True, "a: static int 1 -> static bool True"),
    "float": (1, 1.0, "a: static int 1 -> static float 1.0"),
    "negative zero": (0.0, -0.0, "a: static float 0.0 -> -0.0"),
    "complex": (2j, complex(-0.0, 2), "a: static complex 2j -> (-0+2j)"),
    "enum": (Colour.RED, Colour.BLUE, "a: static Colour.RED -> Colour.BLUE"),
    "int enum": (1, Level.LOW, "a: static int 1 -> static Level.LOW"),
    "dataclass": (Config(1), Config(22), "a.width: static int 1 -> 22"),
    "bool in a dataclass": (Config((1,)), Config((True,)), "a.width[0]: static int 1 -> static bool True"),
    "class": (int, float, "a: class int -> float"),
    "equal classes": (np.float32, jnp.float32, "a: class numpy.float32 -> jax.numpy.float32"),
    "dtype": (np.dtype("float32"), np.dtype("int8"), "a: static dtype('float32') -> dtype('int8')"),
    "own equality": (Fraction(1, 2), Fraction(1, 30), "a: static Fraction(1, 2) -> Fraction(1, 30)"),
    "static node": (partax.tree.Static("b"), partax.tree.Static("c"), "a: static Static('b') -> Static('c')"),
    "in a long list": (list(range(100)), [*range(57), -1, *range(58, 100)], "a[57]: static int 57 -> -1"),
    "aux data": (Bag(X, label="b"), Bag(X, label="c"), "a.<aux data>: static str 'b' -> 'c'"),
    "aux data of another type": (Bag(X, label=(1,)), Bag(X, label=(True,)), "[0]: static int 1 -> static bool True"),
    "field": (Cell(X), Cell(X, mode="other"), "a.mode: static str 'same' -> 'other'"),
    "field of a module": ([Net(X)], [Net(X, width=3.0)], "a[0].width: static int 3 -> static float 3.0"),
}
FUNCTIONS: dict[str, tuple[Any, Any, str]] = {
    "another one": (scaled(2), local(2), "-> fun at test_retraces.py:"),
    "of a library": (jnp.sin, np.cos, "-> numpy.cos"),
    "of C": (math.sin, math.cos, "sin> -> <built-in function cos>"),
}


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        pytest.param(*case, id=f"{kind}: {name}")
        for kind, cases in (("array", ARRAYS), ("structure", STRUCTURES), ("static", STATICS), ("function", FUNCTIONS))
        for name, case in cases.items()
    ],
)
def test_a_change_is_named_with_its_path(before: Any, now: Any, text: str) -> None:
    reason = reason_of(before, now)
    assert text in reason and reason.startswith("a")


RECREATED: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "closure": (scaled(2), scaled(3), ("'n'", "2 to 3")),
    "closure of another type": (scaled(1), scaled(True), ("'n'", "1 to True")),
    "closure of a closure": (over(scaled(2)), over(scaled(3)), ("'n'", "2 to 3")),
    "array": (holding(X), holding(X + 1), ("'held'", "another object")),
    "code": (lambda x, by=2: x * by, lambda x, by=3: x * by, ("other code",)),
    "attribute": (attributed(flag=2), attributed(flag=3), ("flag", "2 to 3")),
    "option of jax.jit": (jax.jit(scaled(2)), jax.jit(scaled(2), keep_unused=True), ("keep_unused", "False to True")),
    "partial": (functools.partial(scaled(2)), functools.partial(scaled(3)), ("'n'", "2 to 3")),
    "method": (Scale(2).apply, Scale(3).apply, ("n'", "2 to 3")),
    "transformed": (jax.vmap(scaled(2)), jax.vmap(scaled(3)), ("'n'", "2 to 3")),
    "object": (Handle(1), Handle(1), ("`Handle` object", "no `__eq__`")),
}


@pytest.mark.parametrize("name", RECREATED)
def test_what_was_re_created_is_named_with_what_it_reads(name: str) -> None:
    before, now, words = RECREATED[name]
    reason = reason_of(before, now)
    assert reason.startswith("`a`: ") and reason.count(" was re-created and ") == 1
    assert all(word in reason for word in words)


def test_a_function_in_a_model_is_named_with_its_path() -> None:
    nets = [Net(X, activation=scaled(slope)) for slope in (2, 3)]
    assert reason_of(*nets).startswith("`a.activation`: <lambda> at test_retraces.py:")


@pytest.mark.parametrize(
    ("before", "now", "advice"),
    [
        (1.0, 2.0, """pass jnp.asarray(a), or dynamic=("a",)"""),
        ({"n": 1}, {"n": 2}, """pass jnp.asarray(a['n']), or dynamic=("a",)"""),
        (Net(X, rate=0.5), Net(X, rate=0.25), """pass jnp.asarray(rate), or dynamic=("a",)"""),
        (Net(X), Net(X, width=4), "it is a static field of `a`: make it one that holds an array"),
        (Bag(X, label=1), Bag(X, label=2), "it is aux data of `a`: make it a child that is an array"),
    ],
)
def test_of_a_number_the_reason_says_what_to_do(before: Any, now: Any, advice: str) -> None:
    assert reason_of(before, now).endswith(f" ({advice})")


class ByEquality:
    """Equal to nothing, with one text and one hash."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1


def test_an_object_that_its_own_equality_distinguishes() -> None:
    f = new_function()
    f(X, Net(X, activation=ByEquality()))
    f(X, Net(X, activation=ByEquality()))
    reason = f.report().traces[-1].reason
    assert reason.startswith("a.activation: static <") and "ByEquality object" in reason


@pytest.mark.parametrize(
    ("label", "change", "text"),
    [
        ({1}, lambda label: label.add(2), ": static {1} -> {1, 2}"),
        ([1], lambda label: label.append(2), ": static list of 1 -> list of 2"),
        ({"b": {"c": 1}}, lambda label: label["b"].update(c=2), "['b']['c']: static int 1 -> 2"),
    ],
)
def test_aux_data_that_is_changed_in_place(label: Any, change: Callable[[Any], Any], text: str) -> None:
    f, bag = new_function(), Bag(X, label=label)
    f(X, bag)
    change(label)
    f(X, bag)
    assert f.report().traces[-1].reason == f"a.<aux data>{text}"


def test_a_sharding_over_an_explicit_axis(devices: list[jax.Device]) -> None:
    mesh = jax.make_mesh((8,), ("data",), (AxisType.Explicit,))
    whole, split = (jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec(of))) for of in (None, "data"))
    assert reason_of(whole, split) == "a: float32[8] -> float32[8@data]"


# ---- Not the arguments.


def in_double(f: Any) -> None:
    with jax.enable_x64(True):
        f(X)


# The calls of a function whose last trace has this reason, with a cache of two keys.
CAUSES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a setting of jax": (lambda f: (f(X), in_double(f)), "jax_enable_x64: False -> True"),
    "a vmap around the call": (lambda f: (f(X[0]), jax.vmap(f, axis_name="batch")(X)), "axes of vmap"),
    "a default": (lambda f: (f(X), f(X, 2)), "a: static int 2, which was not there"),
    "a dropped trace": (lambda f: (f(X), f.clear_cache(), f(X)), "clear_cache() has dropped the earlier traces"),
    "what jax has dropped": (lambda f: (f(X), jax.clear_caches(), f(X)), "jax.clear_caches()"),
    "an evicted key": (lambda f: [f(X, key) for key in "abca"], "evicted: cache_size=2"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_what_is_not_an_argument_is_named(cause: str) -> None:
    call, text = CAUSES[cause]
    f = new_function(cache_size=2)
    call(f)
    assert text in f.report().traces[-1].reason


def test_a_trace_that_raised() -> None:
    @filter_jit
    def f(x: Any, fails: list[bool]) -> Any:
        if failing.pop():
            raise KeyError("no")
        return x

    failing = [False, True]
    with pytest.raises(KeyError):
        f(X, [True])
    f(X, [True])
    assert "trace 1" in f.report().traces[-1].reason and "raised" in f.report().traces[-1].reason
