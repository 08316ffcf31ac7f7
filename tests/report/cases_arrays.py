"""Guards the promise that an array retraces for its shape, its dtype or its weak type, and for nothing else of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from retrace_case import HIT, Case, Library, change, number, played

from counting import seen

f32, i32 = jnp.float32, jnp.int32
ones = np.ones(3, np.float32)
one = jnp.ones(3)
FIRST, SECOND = jax.devices()[0], jax.devices()[-1]

CASES: list[Case] = [
    change("other values of an array", lambda x, a: seen(x) + a.sum(), one, one + 1),
    change(
        "shape", lambda x, a: seen(x) + a.size, jnp.ones((4, 6)), jnp.ones((4, 5)), "a: float32[4,6] -> float32[4,5]"
    ),
    change("shape () -> (1,)", lambda x, a: seen(x) + a.ndim, jnp.ones(()), jnp.ones(1), "a: float32 -> float32[1]"),
    change("dtype", lambda x, a: seen(x) + a.nbytes, one, one.astype("bfloat16"), "a: float32[3] -> bfloat16[3]"),
    change("int array -> bool array", lambda x, a: seen(x) + (a + a).sum(), jnp.ones(3, i32), jnp.ones(3, bool),
        "a: int32[3] -> bool[3]"),
    change("weak type -> strong type", lambda x, a: jnp.zeros(2, jnp.bfloat16) + seen(x)[0, 0].astype(jnp.bfloat16) * a,
        jnp.asarray(2.0), jnp.asarray(2.0, f32), "a: weak float32 -> float32"),
    change("jax array -> NumPy array", lambda x, a: seen(x) + a.sum(), one, ones),
    change("float32 -> NumPy float64, without x64", lambda x, a: seen(x) + a.sum(), one, np.full(3, 2.0)),
    change("`np.int32(1)` -> `np.int64(2)`, without x64", lambda x, a: seen(x) + a, np.int32(1), np.int64(2)),
    change("NumPy array of shape () -> NumPy scalar", lambda x, a: seen(x) + a, np.array(1, np.float32), np.float32(2)),
    change("one array twice -> two arrays", lambda x, a: seen(x) + a[0] - a[1], [one[0], one[0]], [one[0], one[1] + 1]),
    change(
        "Python float -> NumPy scalar", lambda x, a: seen(x) + a, 1.0, np.float32(1), "a: static float 1.0 -> float32"
    ),
    change("another Python float, an argument that `jax.jit` traces", lambda x, a: seen(x) + a, 1.0, 2.0,
        number("a", "static float 1.0 -> 2.0"), jax=HIT),
    change("another PRNG key", lambda x, a: seen(x) + jax.random.uniform(a), 0, 1, make=jax.random.key),
    change("PRNG key of another implementation", lambda x, a: seen(x) + jax.random.uniform(a), "threefry2x32", "rbg",
        "a: key<fry> -> key<rbg>", make=lambda impl: jax.random.key(0, impl=impl)),
    change("typed PRNG key -> raw PRNG key", lambda x, a: seen(x) + a.ndim + jax.random.uniform(a), jax.random.key(0),
        jax.random.PRNGKey(0), "a: key<fry> -> uint32[2]"),
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
    moved("back on a device where it has been", lambda x: seen(x) * 2, lambda: [FIRST, SECOND, FIRST]),
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
