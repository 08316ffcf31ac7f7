"""What a first call costs in a new process: cold, with jax's own compilation cache, and with partax.store.

    python bench/warm_start.py [--quick] [--rows SUBSTRING] [--json FILE] [--check]

Each first call is that of a process of its own, from the call until its result is there; imports and the making of the
arguments are not counted, but in the rows of whole processes. They take turns, on folders that one before them has
filled; where it is measured what storing costs, on empty ones.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

try:
    import diffrax
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    import partax
    import partax.equinox
    import partax.nnx
    from budgets import Known, Measure, Row, as_row, run
    from interleave import Effort, take_turns
    from partax._store.folder import Folder
    from partax._store.records import Loading
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

COLD, CACHE, STORE, STORING, BOTH = "cold", "jax's cache", "partax.store", "storing", "both"
ALONE = "loading alone"
HERE, LOADED = "compiled here", "loaded"
optimizer = optax.adam(1e-3)


class Block(eqx.Module):
    """A layer of a transformer."""

    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]

    def __init__(self, width: int, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(4, width, key=first)
        self.mlp = eqx.nn.MLP(width, width, 4 * width, 1, jax.nn.gelu, key=second)
        self.norms = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class Transformer(eqx.Module):
    """Twelve of them."""

    blocks: list[Block]

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks:
            x = block(x)
        return x


def loss(model: Any, batch: jax.Array) -> jax.Array:
    return jnp.mean(jax.vmap(model)(batch) ** 2)


def train_step(model: Any, state: Any, batch: jax.Array) -> Any:
    value, gradient = partax.filter_value_and_grad(loss)(model, batch)
    updates, state = optimizer.update(gradient, state)
    return partax.apply_updates(model, updates), state, value


Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and the arguments of its first call."""


def with_state(model: Any, batch: jax.Array) -> Call:
    state = optimizer.init(partax.filter(model, partax.is_inexact_array))
    return partax.filter_jit(train_step), (model, state, batch)


def mlp() -> Call:
    return with_state(eqx.nn.MLP(16, 16, 64, 24, key=jax.random.key(0)), jnp.ones((8, 16)))


def transformer() -> Call:
    keys = jax.random.split(jax.random.key(0), 12)
    return with_state(Transformer([Block(32, key) for key in keys]), jnp.ones((4, 16, 32)))


class NnxBlock(nnx.Module):
    """The layer, in Flax nnx."""

    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
        self.first, self.second = nnx.LayerNorm(width, rngs=rngs), nnx.LayerNorm(width, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.first(x))
        return x + self.narrow(nnx.gelu(self.wide(self.second(x))))


def nnx_loss(model: Any, batch: jax.Array) -> jax.Array:
    return jnp.mean(model(batch) ** 2)


def nnx_step(model: Any, state: Any, batch: jax.Array) -> jax.Array:
    value, gradient = nnx.value_and_grad(nnx_loss)(model, batch)
    state.update(model, gradient)
    return value


def nnx_transformer() -> Call:
    model = nnx.Sequential(*[NnxBlock(32, nnx.Rngs(i)) for i in range(12)])
    state = nnx.Optimizer(model, optimizer, wrt=nnx.Param)
    return partax.nnx.jit(nnx_step), (model, state, jnp.ones((4, 16, 32)))


def decay(t: Any, y: Any, rate: Any) -> Any:
    return -rate * y


@eqx.filter_jit
def solve(y: jax.Array) -> Any:
    steps = diffrax.PIDController(rtol=1e-5, atol=1e-7)
    times = diffrax.SaveAt(ts=jnp.linspace(0, 3, 10))
    term = diffrax.ODETerm(decay)
    return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 3.0, 0.1, y, 0.5, saveat=times, stepsize_controller=steps).ys


def ode() -> Call:
    partax.equinox.accelerate()
    return solve, (jnp.ones(8),)


WORKS: dict[str, Callable[[], Call]] = {"mlp": mlp, "transformer": transformer, "nnx": nnx_transformer} | {
    "ode": ode,
    "ode without errors": ode,
}


def first_call(work: str) -> float:
    """The seconds of the first call of this process."""
    step, arguments = WORKS[work]()
    jax.block_until_ready(jax.tree.leaves(arguments))
    begin = time.perf_counter()
    jax.block_until_ready(step(*arguments))
    return time.perf_counter() - begin


def loading_alone(work: str, folder: str) -> float:
    """The seconds to read the stored program of such a first call and to load it, and nothing else."""
    jax.block_until_ready(jax.tree.leaves(WORKS[work]()[1]))
    stored = Folder(Path(folder, "partax"), 2**31)
    begin = time.perf_counter()
    Loading(stored, stored.files()[0].key, tuple(jax.devices())).program.result()
    return time.perf_counter() - begin


def variables_of(form: str, folder: str) -> dict[str, str]:
    """The environment of a command that uses jax's cache or the store in a folder."""
    variables = dict(os.environ)
    if form in (CACHE, BOTH):
        variables |= {
            "JAX_COMPILATION_CACHE_DIR": str(Path(folder, "jax")),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    return variables | ({"PARTAX_STORE": str(Path(folder, "partax"))} if form in (STORE, STORING, BOTH) else {})


def in_a_process(work: str, form: str, folder: str) -> float:
    with tempfile.TemporaryDirectory() as empty:
        folder = empty if form == STORING else folder
        command, variables = [sys.executable, __file__, "--child", work, form, folder], dict(os.environ)
        if work == "ode without errors":
            variables["EQX_ON_ERROR"] = "off"
        if work == "plain":
            runner = ["-m", "partax", "run"] if form in (STORE, STORING, BOTH) else []
            command = [sys.executable, *runner, str(Path(__file__).with_name("plain_script.py"))]
            variables = variables_of(form, folder)
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=variables)
        return float(done.stdout)


def compare(work: str, other: str, effort: Effort, name: str, budget: float) -> Row:
    """A first call that loads its program over another form of it."""
    with tempfile.TemporaryDirectory() as folder:
        forms = (COLD, CACHE, STORE) if other == CACHE else (STORE, other)
        measures = {form: partial(in_a_process, work, form, folder) for form in forms}
        for measure in measures.values():
            measure()  # fills the folders
        timings = take_turns(measures, effort.slow_rounds(7))
    return as_row(name, timings, budget, f"x {other}", measured=timings[STORE].over(timings[other]))


def over_cache(timed: Callable[[str, str], float], rounds: int, name: str, budget: float) -> Row:
    """What takes a form and a folder, with both over jax's cache."""
    with contextlib.ExitStack() as stack:
        measures: dict[str, Callable[[], float]] = {}
        for form in (CACHE, STORE, BOTH):
            measures[form] = partial(timed, form, stack.enter_context(tempfile.TemporaryDirectory()))
            measures[form]()  # fills the folder
        timings = take_turns(measures, rounds)
    return as_row(name, timings, budget, f"x {CACHE}", measured=timings[BOTH].over(timings[CACHE]))


def whole(work: str, effort: Effort, name: str, budget: float) -> Row:
    """A process from its start to its end, with jax's cache, with the store, and with both."""

    def timed(form: str, folder: str) -> float:
        begin = time.perf_counter()
        in_a_process(work, form, folder)
        return time.perf_counter() - begin

    return over_cache(timed, effort.slow_rounds(7), name, budget)


def storing(work: str, effort: Effort, name: str, budget: float) -> Row:
    """A first call that is stored over one that is not."""
    measures = {form: partial(in_a_process, work, form, "") for form in (COLD, STORING)}
    timings = take_turns(measures, effort.slow_rounds(9))
    return as_row(name, timings, budget, f"x {COLD}", measured=timings[STORING].over(timings[COLD]))


def suite_of_tests(_: Effort, name: str, budget: float) -> Row:
    """All of a suite's run by pytest, with jax's cache, with the store, and with both."""

    def timed(form: str, folder: str) -> float:
        suite = str(Path(__file__).with_name("suite_of_tests.py"))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", suite]
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=variables_of(form, folder))
        return time.perf_counter() - begin

    return over_cache(timed, 2, name, budget)


def hits(effort: Effort, name: str, budget: float) -> Row:
    """A loaded program over the same one compiled in this process."""
    _, (model, state, batch) = mlp()
    calls = 20 if effort.quick else 200
    here = partax.filter_jit(train_step, cache_size=1)
    here(model, state, batch)
    with tempfile.TemporaryDirectory() as folder, partax.store(folder):
        loaded = partax.filter_jit(train_step, cache_size=2)
        for _ in range(2):
            loaded.clear_cache()
            loaded(model, state, batch)
            time.sleep(3)  # until it is stored

        def timed(step: Callable[..., Any]) -> float:
            begin = time.perf_counter()
            for _ in repeat(None, calls):
                found = step(model, state, batch)
            jax.block_until_ready(found)
            return (time.perf_counter() - begin) / calls

        if loaded.cache_info().traces:
            raise RuntimeError("nothing was loaded")
        measures = {HERE: partial(timed, here), LOADED: partial(timed, loaded)}
        timings = take_turns(measures, effort.slow_rounds(15))
    return as_row(name, timings, budget, f"x {HERE}", measured=timings[LOADED].over(timings[HERE]))


NAMES = {
    "mlp": "MLP of depth 24 with Adam",
    "transformer": "train step of a transformer of 12 layers",
    "nnx": "the same in Flax nnx, in place",
    "ode": "a solve of diffrax under accelerate()",  # an error calls Python: traced, and not compiled again
    "ode without errors": "a solve of diffrax under accelerate(), errors off",
    "plain": "a transformer of 12 layers in plain JAX, under partax run",
}
PLAIN = "whole process, " + NAMES["plain"]
KNOWN = {PLAIN: Known(0.95, "of what is left a third is XLA's loading of the machine code, a quarter importing jax")}
ROWS: tuple[tuple[str, float, Measure], ...] = (
    *((f"first call, {name}", 0.35, partial(compare, work, CACHE)) for work, name in NAMES.items()),
    *(
        (f"first call over loading alone, {NAMES[work]}", 1.3, partial(compare, work, ALONE))
        for work in ("mlp", "transformer", "nnx", "ode without errors")
    ),
    *((f"whole process, {NAMES[work]}", 0.8, partial(whole, work)) for work in ("mlp", "transformer", "plain")),
    ("first call that is stored, MLP of depth 24 with Adam", 1.05, partial(storing, "mlp")),
    ("a suite of 120 tests that compile, by pytest", 0.8, suite_of_tests),
    ("hit, MLP of depth 24 with Adam", 1.02, hits),
)


def child(work: str, form: str, folder: str) -> None:
    if form in (CACHE, BOTH):
        jax.config.update("jax_compilation_cache_dir", str(Path(folder, "jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if form in (STORE, STORING, BOTH):
        partax.store(Path(folder, "partax"))
    print(loading_alone(work, folder) if form == ALONE else first_call(work))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        sys.exit()
    forms = (COLD, CACHE, STORE, BOTH, ALONE, STORING, HERE, LOADED)
    sys.exit(run(ROWS, forms, forms, __doc__.split("\n")[0], KNOWN))
