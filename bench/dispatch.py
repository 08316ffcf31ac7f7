"""What a call costs: every budget of partax, measured in turns with its peers.

    python bench/dispatch.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

Each row times up to four forms of one computation in turns (see workloads.py and interleave.py) and
compares partax with the floor, `jax.jit` on a flat tuple of arrays. The budgets are for the CPU.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    import partax
    import workloads as work
    from budgets import Known, Measure, Row, as_row, run
    from interleave import (
        Effort,
        Loop,
        Timing,
        chained,
        chained_flat,
        repeated,
        take_turns,
    )
    from workloads import EQUINOX, FLOOR, FORMS, JAX_JIT, PARTAX
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')


OVER_FLOOR = f"x {FLOOR}"
TUPLES = "tuples"
"""partax on the same arrays in tuples, for the rows that compare with those."""
FUNCTION = "function"


def same_value(out: Any) -> Any:
    return out


def identity(effort: Effort, name: str, budget: float) -> Row:
    x = jnp.ones(())
    fns = {
        FLOOR: jax.jit(lambda x: x),
        JAX_JIT: jax.jit(lambda x: x),
        EQUINOX: eqx.filter_jit(lambda x: x),
        PARTAX: partax.filter_jit(lambda x: x),
    }
    loops = {form: repeated(fn, x, wait_for=same_value) for form, fn in fns.items()}
    return as_row(name, effort.timings(loops), budget, OVER_FLOOR)


def identity_of_module(effort: Effort, name: str, budget: float) -> Row:
    forms = work.four_forms(lambda _: lambda model: model, work.Scale(jnp.ones(())))
    loops = {
        form: repeated(f.fn, *f.state, wait_for=same_value if form == FLOOR else lambda out: out.factor)
        for form, f in forms.items()
    }
    return as_row(name, effort.timings(loops), budget, OVER_FLOOR)


class Doubler:
    """A static object with a method."""

    @partax.filter_jit
    def double(self, x: jax.Array) -> jax.Array:
        return x * 2


def method(effort: Effort, name: str, budget: float) -> Row:
    doubler, function, x = Doubler(), Doubler.double, jnp.ones(())

    def methods(count: int) -> None:
        for _ in repeat(None, count):
            doubler.double(x)
        jax.block_until_ready(doubler.double(x))

    def functions(count: int) -> None:
        for _ in repeat(None, count):
            function(doubler, x)
        jax.block_until_ready(function(doubler, x))

    timings = effort.timings({FUNCTION: functions, PARTAX: methods})
    return as_row(name, timings, budget, f"x {FUNCTION}", "`obj.method(x)`, over `function(obj, x)`")


def forward(effort: Effort, name: str, budget: float, *, depth: int) -> Row:
    forms = work.four_forms(lambda _: work.forward, work.mlp(depth=depth, width=32))
    x = jnp.ones(32)
    loops = {form: repeated(f.fn, *f.state, x, wait_for=same_value) for form, f in forms.items()}
    return as_row(name, effort.timings(loops), budget, OVER_FLOOR)


def scalar_out(effort: Effort, name: str, budget: float) -> Row:
    model = work.mlp(depth=64, width=16)
    opt_state = work.adam_state(optax.adam(1e-3), model)
    forms = work.four_forms(lambda _: work.scalar_of_little, model, opt_state)
    x = jnp.ones((8, 16))
    loops = {form: repeated(f.fn, *f.state, x, wait_for=same_value) for form, f in forms.items()}
    return as_row(name, effort.timings(loops), budget, OVER_FLOOR)


def scalar_out_warm(effort: Effort, name: str, budget: float) -> Row:
    """The same in a plain loop: long blocks of calls of one form, whose arrays and code stay in the caches."""
    model = work.mlp(depth=64, width=16)
    forms = work.four_forms(lambda _: work.scalar_of_little, model, work.adam_state(optax.adam(1e-3), model))
    x = jnp.ones((8, 16))
    loops = {form: repeated(f.fn, *f.state, x, wait_for=same_value) for form, f in forms.items()}
    calls = 100 if effort.quick else 1_000

    def block(loop: Loop) -> float:
        loop(calls // 10)
        begin = time.perf_counter()
        loop(calls)
        return (time.perf_counter() - begin) / calls

    timings = take_turns({form: partial(block, loop) for form, loop in loops.items()}, effort.slow_rounds(11))
    return as_row(name, timings, budget, OVER_FLOOR)


class Pair(NamedTuple):
    """Two arrays."""

    weight: jax.Array
    bias: jax.Array


def dicts(effort: Effort, name: str, budget: float) -> Row:
    """Beside the same arrays in tuples; the keys are not in sorted order."""
    arrays = [jnp.full((16,), float(i)) for i in range(200)]
    pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
    forms = work.four_forms(lambda _: work.first_leaf, [{"weight": weight, "bias": bias} for weight, bias in pairs])
    of_tuples = work.four_forms(lambda _: work.first_leaf, pairs)[PARTAX]
    loops = {form: repeated(f.fn, *f.state, wait_for=same_value) for form, f in forms.items()}
    loops[TUPLES] = repeated(of_tuples.fn, *of_tuples.state, wait_for=same_value)
    return as_row(name, effort.timings(loops), budget, f"x {TUPLES}")


def named_tuples(effort: Effort, name: str, budget: float) -> Row:
    arrays = [jnp.full((16,), float(i)) for i in range(200)]
    model = [Pair(*pair) for pair in zip(arrays[::2], arrays[1::2], strict=True)]
    forms = work.four_forms(lambda _: work.first_leaf, model)
    loops = {form: repeated(f.fn, *f.state, wait_for=same_value) for form, f in forms.items()}
    return as_row(name, effort.timings(loops), budget, OVER_FLOOR)


def train_step(effort: Effort, name: str, budget: float, *, frozen: bool) -> Row:
    forms = work.train_forms(work.mlp(depth=64, width=16), frozen=frozen)
    x = jnp.ones((8, 16))
    (flat,) = forms[FLOOR].state
    loops = {FLOOR: chained_flat(forms[FLOOR].fn, flat, x)}
    for form in (JAX_JIT, EQUINOX, PARTAX):
        model, opt_state = forms[form].state
        loops[form] = chained(forms[form].fn, model, opt_state, x, wait_for=work.last_weight)
    return as_row(name, effort.timings(loops), budget, OVER_FLOOR)


def static_leaves(effort: Effort, name: str, budget: float) -> Row:
    def first(leaves: list[Any]) -> jax.Array:
        return leaves[0] + 1

    leaves = work.static_list(100_000)
    forms = work.four_forms(lambda _: first, leaves)
    loops = {
        # `jax.jit` would trace the 100,000 numbers: it has no form of this row but the floor.
        form: repeated(forms[form].fn, *forms[form].state, wait_for=same_value)
        for form in (FLOOR, PARTAX)
    }
    timings = effort.timings(loops)
    slow = repeated(forms[EQUINOX].fn, leaves, wait_for=same_value)
    slow(1)

    def one_call() -> float:
        begin = time.perf_counter()
        slow(1)
        return time.perf_counter() - begin

    timings |= take_turns({EQUINOX: one_call}, effort.slow_rounds(7))
    return as_row(name, timings, budget, "ms")


def statics_given_back(effort: Effort, name: str, budget: float) -> Row:
    """One of the static values is another object in each call, equal to that of the trace; all of them come back."""
    x, numbers = jnp.ones(()), tuple(range(1_000, 101_000))
    ours = partax.filter_jit(lambda x, numbers, rate: (x + 1, numbers, rate))

    def loop(count: int) -> None:
        first = None
        for _ in repeat(None, count):
            first, *_ = ours(x, numbers, float("0.1"))
        jax.block_until_ready(first)

    loops = {FLOOR: repeated(jax.jit(lambda x: x + 1), x, wait_for=same_value), PARTAX: loop}
    return as_row(name, effort.timings(loops), budget, "ms")


def static_keys(effort: Effort, name: str, budget: float) -> Row:
    """Each form first compiles 1,000 programs, trivial ones because that takes most of the time."""
    keys = range(1_000)
    x = jnp.ones(())

    def make() -> Callable[[jax.Array, int], jax.Array]:
        return lambda x, i: x

    fns = {
        FLOOR: jax.jit(make(), static_argnums=1),
        EQUINOX: eqx.filter_jit(make()),
        PARTAX: partax.filter_jit(make()),
    }
    if effort.quick:
        fns = {PARTAX: fns[PARTAX]}

    def cycle(fn: Callable[..., Any]) -> Loop:
        def loop(count: int) -> None:
            for _ in repeat(None, count):
                for i in keys:
                    fn(x, i)

        return loop

    def one_key(fn: Callable[..., Any]) -> Loop:
        def loop(count: int) -> None:
            for _ in repeat(None, count):
                for _ in keys:
                    fn(x, 0)

        return loop

    loops = {form: cycle(fn) for form, fn in fns.items()}
    loops |= {f"{form}, one key": one_key(fn) for form, fn in fns.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", partax.RetraceWarning)  # so many keys are what is measured
        both = effort.timings(loops, calls_per_loop=len(keys))
    over = {}
    for form in fns:
        pairs = zip(both[form].samples, both[f"{form}, one key"].samples, strict=True)
        over[form] = Timing(tuple(many - one for many, one in pairs))
    return as_row(name, over, budget, "µs", "a call, over one key")


def first_call(effort: Effort, name: str, budget: float) -> Row:
    x = jnp.ones((8, 16))

    model = work.mlp(depth=16, width=16)

    def fresh(form: str) -> float:
        built = work.train_forms(model)[form]
        jax.clear_caches()
        gc.collect()
        begin = time.perf_counter()
        jax.block_until_ready(built.fn(*built.state, x))
        return time.perf_counter() - begin

    for form in FORMS:
        fresh(form)  # What is loaded or made once per process belongs to nobody.
    timings = take_turns({form: partial(fresh, form) for form in FORMS}, effort.slow_rounds(15))
    return as_row(name, timings, budget, OVER_FLOOR, "trace + compile + run")


def first_call_of_many(effort: Effort, name: str, budget: float) -> Row:
    """Of a function that does next to nothing, so that it is the arrays that cost."""
    model = [work.Affine(jnp.ones(()), jnp.ones(())) for _ in range(5_000)]

    def fresh(form: str) -> float:
        built = work.four_forms(lambda _: lambda tree: work.first_leaf(tree), model)[form]  # one that nobody has called
        jax.clear_caches()
        gc.collect()
        begin = time.perf_counter()
        jax.block_until_ready(built.fn(*built.state))
        return time.perf_counter() - begin

    for form in FORMS:
        fresh(form)
    timings = take_turns({form: partial(fresh, form) for form in FORMS}, effort.slow_rounds(9))
    return as_row(name, timings, budget, f"x {JAX_JIT}", "trace + compile + run")


def import_time(effort: Effort, name: str, budget: float) -> Row:
    def importing(module: str) -> float:
        # Timed in the child, after jax: the start of a process is far noisier than the difference.
        code = f"import time, jax; begin = time.perf_counter(); import {module}; print(time.perf_counter() - begin)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return float(done.stdout)

    modules = {EQUINOX: "equinox", PARTAX: "partax"}
    for module in modules.values():
        importing(module)  # Fills the file cache and writes the .pyc files.
    measures = {form: partial(importing, module) for form, module in modules.items()}
    timings = take_turns(measures, effort.slow_rounds(11))
    return as_row(name, timings, budget, "ms", "beyond import jax")


def long_computation(effort: Effort, name: str, budget: float) -> Row:
    linear = eqx.nn.Linear(256, 256, key=jax.random.key(0))
    forms = work.four_forms(lambda _: work.long_computation, linear)
    x = jnp.ones((256, 256))
    total: dict[str, list[float]] = {form: [] for form in FORMS}

    def until_it_returns(form: str) -> float:
        f = forms[form]
        begin = time.perf_counter()
        out = f.fn(*f.state, x)
        returned = time.perf_counter() - begin
        out.block_until_ready()
        total[form].append(time.perf_counter() - begin)
        return returned

    for form in FORMS:
        until_it_returns(form)
    timings = take_turns({form: partial(until_it_returns, form) for form in FORMS}, effort.slow_rounds(9))
    completion = Timing(tuple(total[PARTAX][1:])).median
    return as_row(name, timings, budget, "ms", f"until it returns, of {completion * 1e3:.0f} ms")


ADAM = "Adam train step of that MLP (392 in, 391 out)"
METHOD = "a method"
LONG = "a long computation"
STATICS = "list of 1 array and 100,000 static leaves"
KEYS = "1,000 static keys cycled through one wrapper"
SCALAR = "scalar out of a 64-layer MLP and its Adam state (392 arrays)"
WARM = "the same in a plain loop of calls"
DICTIONARIES = "it reads 196 modules, each a dictionary: nearly half of that is CPython's own"
KNOWN = {
    METHOD: Known(1.1, "Python makes a bound method in each call, and a call of 5 µs varies by more from run to run"),
    KEYS: Known(
        20.0, "1,000 programs in turn are cold for jax.jit too; bench/recompile.py has what partax takes above it"
    ),
    STATICS: Known(0.1, "it compares 1.6 MB of pointers, most of the second-level cache"),
    LONG: Known(5.0, "jax.jit takes as long to return, since the computation has both cores"),
    SCALAR: Known(1.2, DICTIONARIES),
    WARM: Known(1.2, DICTIONARIES),
}

ROWS: tuple[tuple[str, float, Measure], ...] = (
    ("identity, one array", 1.06, identity),
    ("identity, module of one array", 1.06, identity_of_module),
    (METHOD, 1.02, method),
    ("forward, 8-layer MLP, width 32 (19 arrays)", 1.06, partial(forward, depth=8)),
    ("forward, 32-layer MLP (67 arrays)", 1.06, partial(forward, depth=32)),
    (SCALAR, 1.10, scalar_out),
    (WARM, 1.10, scalar_out_warm),
    ("100 dicts of two arrays", 1.05, dicts),
    ("100 NamedTuples of two arrays", 1.06, named_tuples),
    (ADAM, 1.2, partial(train_step, frozen=False)),
    ("the same, first half frozen and returned", 0.92, partial(train_step, frozen=True)),
    (STATICS, 0.05, static_leaves),
    ("100,000 static leaves and a new float, all returned", 0.15, statics_given_back),
    (KEYS, 8.0, static_keys),
    ("first call, 16-layer train step", 1.03, first_call),
    ("first call, 10,000 arrays in 5,000 modules", 1.05, first_call_of_many),
    ("import", 20.0, import_time),
    (LONG, 1.0, long_computation),
)


if __name__ == "__main__":
    sys.exit(run(ROWS, FORMS, (JAX_JIT, EQUINOX), "Measure every budget of partax and of its peers.", KNOWN))
