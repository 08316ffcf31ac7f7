"""Ten million calls leave memory as it was: trees, static values and wrappers change from call to call.

    python bench/soak.py [--calls N] [--quick]

It prints the resident memory and Python's blocks at each tenth of the calls, and fails if either has grown since the
first tenth. --quick makes 200,000 calls.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    import partax
    from partax import filter_jit
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

# The rest of the process (jax's caches, the allocator's free lists) moves by a few megabytes either way.
MAX_GROWTH = 16 * 2**20
# The kinds of calls take turns. A leak is a block or more for each call of a kind, and a turn has four of it or more.
TURN = 1_000
MAX_BLOCKS, MAX_BLOCKS_PER_TURN = 1_000, 2
QUICK, FULL = 200_000, 10_000_000
# jax itself keeps some thirty blocks for each trace, in caches with a limit that is far away.
TRACE_EVERY = 100_000


class Pair(NamedTuple):
    left: Any
    right: Any


class Layer(eqx.Module):
    weight: Any
    bias: Any = None
    rate: Any = 0.5
    scale: Any = eqx.field(static=True, default=2)

    def total(self, x: Any) -> Any:
        return x * self.scale


class Bag:
    def __init__(self, *items: Any, label: Any) -> None:
        self.items, self.label = items, label


jax.tree_util.register_pytree_node(Bag, lambda b: (b.items, b.label), lambda label, items: Bag(*items, label=label))

X = jnp.ones(3)
TREES: list[Callable[[], Any]] = [
    lambda: [X, 1, {"k": X}],
    lambda: {"b": X, "a": (X, "s", 2.5)},
    lambda: (X, [X, [X, None]]),
    lambda: Layer(X, X, rate=float("nan")),
    lambda: Layer(X, scale=(1, [2, {"a": {3.0}}])),
    lambda: Bag(X, label=["mutable", [1], bytearray(b"b")]),
    lambda: OrderedDict(n={1, 2}, p=Pair(X, frozenset({1.5}))),
    lambda: [np.float32(1), bytearray(b"ab"), lambda x: x],
]


def both(tree: Any, n: Any) -> Any:
    return tree, n


def scaled(x: Any, n: int) -> Any:
    return x * n


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
BAD: list[tuple[Any, ...]] = [(1,), (1, 2, 3), ({1: 1, "a": 2}, 1), (Bag(label=np.ones(2)), 1)]


class Soak:
    """Makes calls, and has made `calls`."""

    def __init__(self) -> None:
        self.calls = 0
        self.tree = filter_jit(both)
        self.small = filter_jit(lambda tree, n: (n, tree), cache_size=4)
        self.cleared = filter_jit(lambda tree, n: [tree, n])
        self.model = Layer(X, X)

    def run(self, calls: int) -> None:
        """Hits, and among them everything else at its turn."""
        f, trees, count = self.tree, TREES, len(TREES)
        for i in range(self.calls, self.calls + calls):
            turn = i % TURN
            if turn >= 60:
                f(trees[i % count](), i % 3)
            elif turn < 20:
                self.short_lived(i)
            elif turn < 40:
                self.refused(i)
            elif turn < 59:
                self.split(i)
            elif i % TRACE_EVERY == 59:
                self.traced_again(i)
            else:
                self.endless()
        self.calls += calls

    def short_lived(self, i: int) -> None:
        """Wrappers that die at once: of one function, of re-created functions, of methods."""
        match i % 3:
            case 0:
                filter_jit(scaled)(X, i % 2)
            case 1:
                rate = (i % 4) * 0.5
                filter_jit(lambda x, n: (x * rate, n))(X, 1)
            case _:
                filter_jit(self.model.total)(X)

    def refused(self, i: int) -> None:
        try:
            self.tree(*BAD[i % len(BAD)])
        except (TypeError, ValueError):
            return
        raise AssertionError("taken, and not refused")

    def endless(self) -> None:
        try:
            self.tree(ENDLESS, 1)
        except RecursionError:
            return
        raise AssertionError("taken, and not refused")

    def split(self, i: int) -> None:
        tree = TREES[i % len(TREES)]()
        parts = partax.partition(tree, partax.by_path("**/0"), partax.is_array)
        spec, *dicts = partax.flat_partition(partax.combine(*parts), Layer, partax.is_array, rest="static")
        self.tree(partax.flat_combine(spec, *dicts), i % 3)

    def traced_again(self, i: int) -> None:
        """A key that was never there and pushes out another, and a known one after its cache was cleared."""
        self.small([X, i], (i, str(i), [i]))
        self.cleared.clear_cache()
        self.cleared(TREES[3](), 1)


def resident() -> int:
    """Bytes of memory that this process holds now."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=FULL)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} calls")
    options = parser.parse_args()
    calls = QUICK if options.quick else options.calls

    soak = Soak()
    sizes: list[int] = []
    blocks: list[int] = []
    print(f"{'calls':>12} {'seconds':>8} {'resident MiB':>13} {'blocks':>10}", flush=True)
    begin = time.perf_counter()
    for _ in range(10):
        soak.run(calls // 10)
        gc.collect()
        sizes.append(resident())
        blocks.append(sys.getallocatedblocks())
        seconds = time.perf_counter() - begin
        print(f"{soak.calls:12,} {seconds:8.1f} {sizes[-1] / 2**20:13.1f} {blocks[-1]:10,}", flush=True)
    growth, more = sizes[-1] - sizes[0], blocks[-1] - blocks[0]
    print(f"Since the first tenth: {growth / 2**20:+.1f} MiB resident, {more:+,} blocks, in {calls * 9 // 10:,} calls.")
    allowed = MAX_BLOCKS + MAX_BLOCKS_PER_TURN * calls // TURN
    if growth > MAX_GROWTH or more > allowed:
        sys.exit(f"Memory grew: at most {MAX_GROWTH // 2**20} MiB and {allowed:,} blocks are allowed.")


if __name__ == "__main__":
    main()
