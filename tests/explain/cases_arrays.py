"""Guards the promise that an array retraces for its shape, dtype or weak type alone, and a tree for its structure."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from retrace_case import HIT, OTHERS_WRONG, RAISES, Case, Library, change, number, played

from counting import seen

ones = np.ones(3, np.float32)
three = jnp.ones(3)
one = jnp.ones(())
FIRST, SECOND = jax.devices()[0], jax.devices()[-1]


def weighted(values: Any) -> Any:
    """A sum that tells the order."""
    return sum(i * value for i, value in enumerate(values))


CASES: list[Case] = [
    change("other values of an array", lambda x, a: seen(x) + a.sum(), three, three + 1),
    change(
        "shape", lambda x, a: seen(x) + a.size, jnp.ones((4, 6)), jnp.ones((4, 5)), "a: float32[4,6] -> float32[4,5]"
    ),
    change("dtype", lambda x, a: seen(x) + a.nbytes, three, three.astype("bfloat16"), "a: float32[3] -> bfloat16[3]"),
    change("weak type -> strong type", lambda x, a: jnp.zeros(2, jnp.bfloat16) + seen(x)[0, 0].astype(jnp.bfloat16) * a,
        jnp.asarray(2.0), jnp.float32(2), "a: weak float32 -> float32"),
    change("jax array -> NumPy array", lambda x, a: seen(x) + a.sum(), three, ones),
    change("one array twice -> two arrays", lambda x, a: seen(x) + a[0] - a[1], [one, one], [one, one + 1]),
    change(
        "Python float -> NumPy scalar", lambda x, a: seen(x) + a, 1.0, np.float32(1), "a: static float 1.0 -> float32"
    ),
    change("another Python float, an argument that `jax.jit` traces", lambda x, a: seen(x) + a, 1.0, 2.0,
        number("a", "static float 1.0 -> 2.0"), jax=HIT),
    change("another PRNG key", lambda x, a: seen(x) + jax.random.uniform(a), 0, 1, make=jax.random.key),
    change("PRNG key of another implementation", lambda x, a: seen(x) + jax.random.uniform(a), "threefry2x32", "rbg",
        "a: key<fry> -> key<rbg>", make=lambda impl: jax.random.key(0, impl=impl)),
    change("None -> array", lambda x, a: seen(x) + (a is None), None, one, "a: None -> float32"),
    change("longer list", lambda x, a: seen(x) + len(a), [one], [one, one], "a: list of 1 -> list of 2"),
    change("`[]` -> `{}`", lambda x, a: seen(x) + (type(a) is list), [], {}, "a: list of 0 -> dict of 0"),
    change("keys of a dict in another order", lambda x, a: seen(x) + a["b"] - a["c"], {"b": one, "c": 2 * one},
        {"c": 2 * one, "b": one}),
    change("keys of an OrderedDict in another order", lambda x, a: seen(x) + weighted(a.values()),
        OrderedDict(b=one, c=2 * one), OrderedDict(c=2 * one, b=one),
        "a: OrderedDict in the order 'b', 'c' -> OrderedDict in the order 'c', 'b'"),
    change("dict -> defaultdict", lambda x, a: seen(x) + (type(a) is dict), {"b": one}, defaultdict(list, b=one),
        "a: dict of 1 -> defaultdict of 1"),
    change("a new key of a dict", lambda x, a: seen(x) + len(a), {"b": one}, {"b": one, "c": [one]},
        "a['c']: list of 1, which was not there"),
    change("key 1 -> key True of a dict", lambda x, a: seen(x) + len(repr(list(a))), {1: one}, {True: one},
        "a[True]: float32, which was not there; a[1]: float32, which is there no more", **OTHERS_WRONG),
    change("array -> text, below", lambda x, a: seen(x) + isinstance(a["mode"], str), {"mode": one}, {"mode": "fast"},
        "a['mode']: float32 -> static str 'fast'", jax=RAISES),
]  # fmt: skip


def moved(name: str, fun: Any, places: Callable[[], list[Any]], line: str | None = None, **others: Any) -> Case:
    """An array in one place after another; None is where jax puts it."""

    def play(library: Library) -> Iterator[Callable[[], Any]]:
        f = library.jit(fun)
        for where in places():
            x = jnp.arange(8.0) if where is None else jax.device_put(jnp.arange(8.0), where)
            yield lambda x=x: f(x)

    return played(name, line, **others)(play)


def sharded(*axes: str | None, kind: AxisType = AxisType.Auto) -> NamedSharding:
    return NamedSharding(jax.make_mesh((8,), ("data",), (kind,)), PartitionSpec(*axes))


CASES += [
    moved("uncommitted -> committed to the same device", lambda x: seen(x) * 2, lambda: [None, FIRST],
        f"<lambda>: compiled again for trace 1, because x: uncommitted -> committed to {FIRST}", partax=HIT),
    moved("another device", lambda x: seen(x) * 2, lambda: [FIRST, SECOND],
        f"<lambda>: compiled again for trace 1, because x: committed to {FIRST} -> committed to {SECOND}", partax=HIT),
    moved("sharding over an automatic axis", lambda x: seen(x) * 2, lambda: [sharded(), sharded("data")],
        f"<lambda>: compiled again for trace 1, because x: committed to {PartitionSpec()} of mesh {{'data': 8}} -> "
        f"committed to {PartitionSpec('data')} of mesh {{'data': 8}}", partax=HIT),
    moved("sharding over an explicit axis", lambda x: seen(x) * 2,
        lambda: [sharded(None, kind=AxisType.Explicit), sharded("data", kind=AxisType.Explicit)],
        "<lambda>: trace 2, because x: float32[8] -> float32[8@data]"),
]  # fmt: skip


@CASES.append
@played("NumPy array that is changed in place")
def _(library: Library) -> Iterator[Callable[[], Any]]:
    f, array = library.jit(lambda x: seen(x) * 2), np.ones(3, np.float32)
    yield lambda: f(array)
    array *= 2
    yield lambda: f(array)
