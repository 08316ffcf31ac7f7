"""Fine-tune the last layer of a digits model, kill the run halfway, and go on from its file.

    python bench/finetune_digits.py [--depth N] [--width N] [--batch-size N] [--steps N] [--save-every N] [--seed N]

The model learns the digits 0 to 6 first. Then all but the last layer is frozen, and the last layer learns all ten, its
weight and its bias each with an optimiser of its own. That run is made twice: once without a break, and once in a
process that saves every so many steps and kills itself on the way; a new process loads the file and goes on. Both must
end with the same state, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import rich.box
    import rich.console
    import rich.table
    import safetensors  # noqa: F401 - partax.save needs it
    from tqdm import tqdm

    import partax
    import workloads as work
    from interleave import Effort, Loop, Timing
    from partax import by_path
    from train_digits import Batch, Digits, accuracy, cross_entropy, load, whole_number
except ImportError as error:
    sys.exit(f'This demo needs {error.name}: run pip install "partax[demo]"')

GOAL = 0.85
PRETRAINING_STEPS = 300
NOISE = 0.1
"""Of the images: drawn again in each step, from a key that is a part of the training state."""
RATES = {"weight": 1e-2, "bias": 3e-2}
ALL, MASKED, FROZEN = "all parameters trained", "frozen by zero updates", "frozen by wrt="


class State(NamedTuple):
    """All that a run needs to go on."""

    model: eqx.nn.MLP
    opt_state: Any
    key: jax.Array
    step: jax.Array


Step = Callable[[State, jax.Array, jax.Array], tuple[State, jax.Array]]


def make_step(optimizer: optax.GradientTransformation, wrt: Any = None) -> Step:
    @partax.filter_jit
    def step(state: State, x: jax.Array, y: jax.Array) -> tuple[State, jax.Array]:
        key, now = jax.random.split(state.key)
        x = x + NOISE * jax.random.normal(now, x.shape)
        loss, grads = partax.filter_value_and_grad(cross_entropy, wrt=wrt)(state.model, x, y)
        updates, opt_state = optimizer.update(grads, state.opt_state)
        model = partax.apply_updates(state.model, updates)
        return State(model, opt_state, key, state.step + 1), loss

    return step


def begin(model: eqx.nn.MLP, optimizer: optax.GradientTransformation, seed: int) -> State:
    return State(model, work.adam_state(optimizer, model), jax.random.key(seed), jnp.int32(0))


class FineTuning:
    """The second task: the last layer learns, in two groups."""

    def __init__(self, model: eqx.nn.MLP, *, frozen: bool = True) -> None:
        layer = str(len(model.layers) - 1) if frozen else "*"
        self.groups = {name: by_path(f"layers/{layer}/{name}") for name in RATES}
        self.trained = by_path(f"layers/{layer}/**")
        transforms = {name: optax.adam(rate) for name, rate in RATES.items()} | {"frozen": optax.set_to_zero()}
        labels = partax.tree.labels(model, self.groups, default="frozen")
        # A function, because optax would call a label tree that is a model.
        self.optimizer = optax.multi_transform(transforms, lambda _: labels)
        self.step = make_step(self.optimizer, self.trained)

    def begin(self, model: eqx.nn.MLP, seed: int) -> State:
        return begin(model, self.optimizer, seed)


def new_model(depth: int, width: int, seed: int) -> eqx.nn.MLP:
    return work.mlp(depth=depth, width=width, in_size=64, out_size=10, seed=seed)


def pretrain(options: argparse.Namespace, digits: Digits) -> eqx.nn.MLP:
    few = digits.train_y < 7
    seven = Digits(digits.train_x[few], digits.train_y[few], digits.test_x, digits.test_y)
    optimizer = optax.adam(5e-3)
    state = begin(new_model(options.depth, options.width, options.seed), optimizer, options.seed)
    batches = seven.batches(options.batch_size, options.seed)
    return run(make_step(optimizer), state, batches, PRETRAINING_STEPS, "digits 0 to 6").model


def run(
    step: Step,
    state: State,
    batches: Iterator[Batch],
    steps: int,
    title: str,
    after: Callable[[State], None] = lambda state: None,
) -> State:
    """Train up to that step, on the batches that the steps before it have not had."""
    done = int(state.step)
    with tqdm(islice(batches, done, steps), initial=done, total=steps, unit="step", desc=title, disable=None) as bar:
        for x, y in bar:
            state, loss = step(state, x, y)
            after(state)
        bar.set_postfix(loss=f"{loss:.4f}")
    return state


def worker(options: argparse.Namespace) -> None:
    """Go on from the file, saving to it every so many steps; and be killed at one of them, if so told."""
    # Shapes alone: nothing is computed that the file will replace.
    model = partax.filter_jit(new_model).eval_shape(options.depth, options.width, options.seed)
    tuning = FineTuning(model)
    like = partax.filter_jit(tuning.begin).eval_shape(model, options.seed)
    state = partax.load(options.worker, like)

    def after(state: State) -> None:
        done = int(state.step)
        if done == options.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if done % options.save_every == 0 or done == options.steps:
            partax.save(options.worker, state)

    batches = load(options.seed).batches(options.batch_size, options.seed)
    title = "to be killed" if options.kill_at else "after the kill"
    run(tuning.step, state, batches, options.steps, title, after)


def start_worker(options: argparse.Namespace, file: Path, kill_at: int) -> int:
    arguments = ["--worker", str(file), "--kill-at", str(kill_at)]
    for name in ("depth", "width", "batch_size", "steps", "save_every", "seed"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return subprocess.run([sys.executable, __file__, *arguments]).returncode


def bits(tree: Any) -> dict[str, tuple[Any, ...]]:
    """Every array of a tree by path, down to its bits."""
    _, arrays = partax.flat_partition(tree, partax.is_array, rest="static")

    def of(array: jax.Array) -> tuple[Any, ...]:
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        return array.dtype, array.shape, np.asarray(array).tobytes()

    return {path: of(array) for path, array in arrays.items()}


def same_objects(tuning: FineTuning, before: eqx.nn.MLP, after: eqx.nn.MLP) -> tuple[int, int]:
    """How many of the frozen arrays are the same objects in both models, and how many there are."""
    _, _, old = partax.flat_partition(before, tuning.trained, partax.is_array, rest="static")
    _, _, new = partax.flat_partition(after, tuning.trained, partax.is_array, rest="static")
    return sum(new[path] is array for path, array in old.items()), len(old)


def chained(step: Step, state: State, batch: Batch) -> Loop:
    def loop(count: int) -> None:
        now, loss = state, None
        for _ in repeat(None, count):
            now, loss = step(now, *batch)
        jax.block_until_ready((loss, now.model.layers[-1].weight))

    return loop


def step_times(model: eqx.nn.MLP, batch: Batch) -> dict[str, Timing]:
    whole, last = FineTuning(model, frozen=False), FineTuning(model)
    steps = {ALL: (whole, whole.step), MASKED: (last, make_step(last.optimizer)), FROZEN: (last, last.step)}
    loops = {name: chained(step, tuning.begin(model, 0), batch) for name, (tuning, step) in steps.items()}
    return Effort(quick=False).timings(loops)


def as_table(timings: dict[str, Timing]) -> rich.table.Table:
    table = rich.table.Table(title="A step of fine-tuning, in turns", box=rich.box.SIMPLE)
    table.add_column("train step")
    table.add_column("time per step", justify="right")
    table.add_column("to all trained", justify="right")
    for name, timing in timings.items():
        table.add_row(name, f"{timing.median * 1e6:.1f} µs", f"{timing.over(timings[ALL]):.2f} x")
    return table


def option_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Fine-tune the last layer of a digits model with partax, through a kill.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = partial(parser.add_argument, metavar="N")
    add("--depth", type=whole_number(1, 200), default=3, help="hidden layers")
    add("--width", type=whole_number(1, 4096), default=64, help="units in a hidden layer")
    add("--batch-size", type=whole_number(1, 700), default=32, help="images in a step")
    add("--steps", type=whole_number(4, 1_000_000), default=1200, help="steps of fine-tuning")
    add("--save-every", type=whole_number(1, 1_000_000), default=50, help="steps from save to save")
    add("--seed", type=whole_number(0, 2**31 - 1), default=0, help="weights, split, batches and noise")
    # How this program starts itself.
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kill-at", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    parser = option_parser()
    options = parser.parse_args()
    if options.worker:
        worker(options)
        return 0
    # Only the default run is known to reach the goal.
    by_default = options == parser.parse_args([])
    console = rich.console.Console(markup=False)
    digits = load(options.seed)
    test = jnp.asarray(digits.test_x), jnp.asarray(digits.test_y)

    model = pretrain(options, digits)
    before = float(accuracy(model, *test))
    tuning = FineTuning(model)
    console.print(str(partax.tree.summary(model)), highlight=False)

    start = tuning.begin(model, options.seed)
    batches = partial(digits.batches, options.batch_size, options.seed)
    once, _ = tuning.step(start, *next(batches()))
    same, frozen = same_objects(tuning, model, once.model)
    console.print(f"frozen parameters after a step: {same} of {frozen} arrays are the same objects")

    expected = run(tuning.step, start, batches(), options.steps, "without a break")
    share = float(accuracy(expected.model, *test))
    console.print(f"held-out accuracy: {before:.2%} before, {share:.2%} after {options.steps} steps")

    # Between two saves, so that steps are lost.
    kill_at = min(options.steps // 2 + max(1, options.save_every // 2), options.steps - 1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.safetensors"
        partax.save(file, start)
        killed = start_worker(options, file, kill_at)
        if killed != -signal.SIGKILL:
            console.print(f"the run was to be killed at step {kill_at}, but ended with status {killed}")
            return 1
        saved = int(partax.load(file, start).step)
        console.print(f"killed at step {kill_at}; the file has step {saved} in {file.stat().st_size:,} bytes")
        if start_worker(options, file, 0) != 0:
            console.print("the run could not go on from its file")
            return 1
        found = partax.load(file, start)
    wanted, got = bits(expected), bits(found)
    differing = [path for path in wanted if wanted[path] != got.get(path)]
    agree = not differing and wanted.keys() == got.keys()
    verdict = "the same bit for bit" if agree else f"different in {', '.join(differing)}"
    console.print(f"with and without the kill: {len(wanted)} arrays, {verdict}")

    console.print(as_table(step_times(model, next(batches()))))
    if not agree or same != frozen:
        return 1
    if share < GOAL and by_default:
        console.print(f"the accuracy of {share:.2%} is below the goal of {GOAL:.0%}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
