"""Guards the promise that how and where a call is made, and jax's settings, retrace only if the program sees them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from retrace_case import OTHERS_TRACE, RAISES, TRACES, WRONG, Case, Library, X, number, played

import partax
from counting import seen

CASES: list[Case] = []

Calls = Iterator[Callable[[], Any]]


def calls(
    name: str, fun: Any, first: Any, second: Any, reason: str | None = None, jit: Any = None, **others: Any
) -> Case:
    """Two calls of a lambda, each given by what calls it, and the options of `jit` for it."""

    def play(library: Library) -> Calls:
        f = library.jit(fun, **(jit or {}))
        yield lambda: first(f)
        yield lambda: second(f)

    return played(name, reason and f"<lambda>: trace 2, because {reason}", **others)(play)


def under(context: Callable[[], Any]) -> Callable[[Any], Any]:
    """A call in a context."""

    def call(f: Any) -> Any:
        with context():
            return f(X)

    return call


def plainly(f: Any) -> Any:
    return f(X)


MESH = jax.make_mesh((1,), ("data",), (AxisType.Auto,))
OTHER = jax.devices()[-1]
DONATED = {"partax": {"donate": "all"}, "equinox": {"donate": "all"}, "jax": {"donate_argnums": 0}}
TRACED = {"partax": {"dynamic": partax.is_array_like}}
NAMED = {"partax": {"dynamic": ("lr",)}}

CASES += [
    calls("by position -> by keyword", lambda x, y: seen(x) - y, lambda f: f(X, X), lambda f: f(X, y=X), jax=TRACES),
    calls("a default that is left out -> given", lambda x, n=2: seen(x) * n, lambda f: f(X), lambda f: f(X, 2),
        "n: static int 2, which was not there", jit={"static": ("n",)}, **OTHERS_TRACE),
    calls("`**kwargs` in another order", lambda x, **more: seen(x) + more["a"] - more["b"],
        lambda f: f(X, a=X, b=2 * X), lambda f: f(X, b=2 * X, a=X)),
    calls("an array that is donated", lambda x: seen(x) * 2, lambda f: f(X + 1), lambda f: f(X + 2), jit=DONATED),
    calls("another Python number, with `dynamic=is_array_like`", lambda x, n: seen(x) * n, lambda f: f(X, 2.0),
        lambda f: f(X, 3.0), jit=TRACED, equinox=TRACES),
    calls('another `lr`, with `dynamic=("lr",)`', lambda x, lr, n: seen(x) * lr * n, lambda f: f(X, 2.0, 3),
        lambda f: f(X, 4.0, 3), jit={"static": ("n",), **NAMED}, equinox=TRACES),
    calls('another `n`, with `dynamic=("lr",)`', lambda x, lr, n: seen(x) * lr * n, lambda f: f(X, 2.0, 3),
        lambda f: f(X, 2.0, 4), number("n", "static int 3 -> 4"), jit={"static": ("n",), **NAMED}),
    calls("a call inside of `jax.jit`", lambda x: seen(x) * 2, lambda f: f(X), lambda f: jax.jit(lambda x: f(x))(X)),
    calls("a call inside of `jax.vmap` with an axis name", lambda x: seen(x) * 2, lambda f: f(X[0]),
        lambda f: jax.vmap(f, axis_name="batch")(X), "axes of vmap or shard_map: None -> {'batch': 2}"),
    calls("`jax_enable_x64`", lambda x: seen(x) + jnp.arange(3).itemsize, plainly, under(lambda: jax.enable_x64(True)),
        "jax_enable_x64: False -> True"),
    calls("`jax_default_matmul_precision`", lambda x: seen(x) @ x.T, plainly,
        under(lambda: jax.default_matmul_precision("float32")), "jax_default_matmul_precision: None -> float32"),
    calls("`jax_default_device`", lambda x: seen(x) * 2, plainly, under(lambda: jax.default_device(OTHER)),
        f"jax_default_device: None -> {OTHER}"),
    calls("`jax_debug_nans`", lambda x: seen(x) * 2, plainly, under(lambda: jax.debug_nans(True))),
    calls("`jax.set_mesh`", lambda x: seen(x) * 2, plainly, under(lambda: jax.set_mesh(MESH)),
        f"mesh: None -> {MESH.abstract_mesh}"),
]  # fmt: skip


@CASES.append
@played("compiled ahead of time from a ShapeDtypeStruct -> called", equinox=RAISES)
def _(library: Library) -> Calls:
    f = library.jit(lambda x: seen(x) * 2)
    yield lambda: library.compiled(f, jax.ShapeDtypeStruct(X.shape, X.dtype))(X)
    yield lambda: f(X)


@CASES.append
@played(
    "compiled ahead of time for `n=2` -> called with `n=3`",
    "`n`: compiled with 2, called with 3; static values are part of the program: lower and compile again for the new "
    "value",
    partax=RAISES,
    jax=None,
    equinox=WRONG,
)
def _(library: Library) -> Calls:
    def f(x: Any, n: Any) -> Any:
        return seen(x) * n

    f = library.jit(f)
    compiled = library.compiled(f, X, 2)
    yield lambda: compiled(X, 2)
    yield lambda: compiled(X, 3)


def emptied(name: str, empty: Callable[[Any], object], reason: str, **others: Any) -> Case:
    """Two equal calls, between which a cache is emptied."""

    def play(library: Library) -> Calls:
        f = library.jit(lambda x, case=name: seen(x) * 2)
        yield lambda: f(X)
        if library.name != "plain":
            empty(f)
        yield lambda: f(X)

    return played(name, f"<lambda>: trace 2, because {reason}", **others)(play)


CASES += [
    emptied("`clear_cache()`", lambda f: f.clear_cache(), "clear_cache() has dropped trace 1, of the same arguments",
        equinox=None),
    emptied("`jax.clear_caches()`", lambda f: jax.clear_caches(),
        "jax holds trace 1, of the same arguments, no more, as after jax.clear_caches() (compared: structure, static "
        "values, dtypes, shapes, jax configuration)"),
]  # fmt: skip


@CASES.append
@played(
    "a key that `cache_size=2` has evicted",
    "<lambda>: trace 4, because the key of trace 1, of the same arguments, was evicted: cache_size=2 keeps the static "
    "keys used last",
    jax=None,
    equinox=None,
)
def _(library: Library) -> Calls:
    f = library.jit(lambda x, mode: seen(x) * len(mode), partax={"cache_size": 2})
    for mode in ("a", "bb", "ccc", "a"):
        yield lambda mode=mode: f(X, mode)


@CASES.append
@played(
    "the trace before raised an exception",
    "<lambda>: trace 2, because trace 1, of the same arguments, raised an exception",
)
def _(library: Library) -> Calls:
    failing = True

    def check(x: Any) -> Any:
        nonlocal failing  # its own record, not what another function would be
        failing, failed = False, failing
        if failed:
            raise KeyError("no")
        return x

    f = library.jit(lambda x: check(seen(x)) * 2)
    with contextlib.suppress(KeyError):
        f(X)
    yield lambda: f(X)


@CASES.append
@played(
    "the class of an argument has been registered as a node",
    "<lambda>: trace 2, because a: static Late() -> Late",
    jax=None,
)
def _(library: Library) -> Calls:
    class Late:
        def __repr__(self) -> str:
            return "Late()"

    f = library.jit(lambda x, a: seen(x) + len(jax.tree.leaves(a)))
    late = Late()
    yield lambda: f(X, late)
    jax.tree_util.register_pytree_node(Late, lambda late: ((), None), lambda _, children: Late())
    yield lambda: f(X, late)
