"""Whether calls keep an accelerator busy: the time of a train step against that of its work on the device.

The model has many small arrays, so that a call has much to do on the host. Four figures for each form, taken in turns:

returns   from a call on an idle device until it returns: the host can do nothing else
ready     from that call until its result is computed
free      the share of `ready` in which the host is free to prepare the next call; 0% for a call that waits
step      of many calls in a row, each on the result of the last one, with one wait at the end

The device's own time is that of the same steps as one program with a loop in it. Where calls overlap with the device, a
step takes the larger of `returns` and the device's time; where they do not, it takes `ready`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import rich.box
    import rich.console
    import rich.table

    import workloads as work
    from budgets import readable
    from interleave import take_turns
    from workloads import EQUINOX, FLOOR, FORMS, JAX_JIT, PARTAX, Form
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

NAMES = {FLOOR: "jax.jit, flat tuple", JAX_JIT: "jax.jit, pytree", EQUINOX: "Equinox", PARTAX: "partax"}
DEPTH = 64
BUDGET = 1.05
"""Of partax's step over that of `jax.jit` on a flat tuple."""


@dataclass(frozen=True)
class Figures:
    """Medians for one form, in seconds."""

    returns: float
    ready: float
    step: float

    @property
    def free(self) -> float:
        return max(0.0, 1 - self.returns / self.ready)


def train(form: str, fn: Callable[..., Any], state: Any, batch: jax.Array, steps: int) -> tuple[Any, Any]:
    """The state after some steps, and an array of it to wait for. Waits for nothing itself."""
    for _ in range(steps):
        state = fn(state, batch) if form == FLOOR else fn(*state, batch)
    return state, state[-1] if form == FLOOR else work.last_weight(state[0])


def device_seconds(floor: Form, batch: jax.Array, steps: int, rounds: int) -> float:
    """Of one step, where the steps are a loop on the device."""

    @jax.jit
    def loop(state: tuple[jax.Array, ...], batch: jax.Array) -> tuple[jax.Array, ...]:
        return jax.lax.fori_loop(0, steps, lambda _, state: floor.fn(state, batch), state)

    (state,) = floor.state
    jax.block_until_ready(loop(state, batch))
    times: list[float] = []
    for _ in range(rounds):
        begin = time.perf_counter()
        jax.block_until_ready(loop(state, batch)[-1])
        times.append((time.perf_counter() - begin) / steps)
    return statistics.median(times)


def measure(width: int, rows: int, steps: int, rounds: int) -> tuple[float, dict[str, Figures]]:
    """The device's time of a step, and the figures of each form."""
    forms = work.train_forms(work.mlp(depth=DEPTH, width=width))
    batch = jnp.ones((rows, width))
    states = {form: forms[form].state[0] if form == FLOOR else forms[form].state for form in FORMS}
    single: dict[str, tuple[list[float], list[float]]] = {form: ([], []) for form in FORMS}
    for form in FORMS:  # Compiles, and sees outputs come back as inputs.
        train(form, forms[form].fn, states[form], batch, 3)[1].block_until_ready()

    def sample(form: str) -> Callable[[], float]:
        fn, state = forms[form].fn, states[form]

        def steps_in_a_row() -> float:
            train(form, fn, state, batch, 1)[1].block_until_ready()  # Untimed: back into the caches.
            for _ in range(3):
                begin = time.perf_counter()
                _, last = train(form, fn, state, batch, 1)
                single[form][0].append(time.perf_counter() - begin)
                last.block_until_ready()
                single[form][1].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            train(form, fn, state, batch, steps)[1].block_until_ready()
            return (time.perf_counter() - begin) / steps

        return steps_in_a_row

    timings = take_turns({form: sample(form) for form in FORMS}, rounds)
    figures = {
        form: Figures(*(statistics.median(times) for times in single[form]), timings[form].median) for form in FORMS
    }
    return device_seconds(forms[FLOOR], batch, steps, max(3, rounds // 4)), figures


def as_table(results: dict[str, tuple[float, dict[str, Figures]]]) -> rich.table.Table:
    device = jax.devices()[0]
    title = f"Adam steps of an MLP of {DEPTH} layers, 392 arrays; jax {jax.__version__}, {device.device_kind}"
    table = rich.table.Table(title=title, box=rich.box.SIMPLE)
    for column in ("model", "form", "returns", "ready", "free", "step", "device", "step / device", "step / flat"):
        table.add_column(column, justify="left" if column in ("model", "form") else "right")
    for name, (device_time, figures) in results.items():
        for form in FORMS:
            one = figures[form]
            table.add_row(
                name if form == FORMS[0] else "",
                NAMES[form],
                readable(one.returns),
                readable(one.ready),
                f"{one.free:.0%}",
                readable(one.step),
                readable(device_time) if form == FORMS[0] else "",
                f"{one.step / device_time:.2f} x",
                f"{one.step / figures[FLOOR].step:.2f} x",
            )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="gpu", help="where to measure: gpu (the default), tpu or cpu")
    parser.add_argument("--quick", action="store_true", help="one small model and few repetitions")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the results here")
    parser.add_argument("--check", action="store_true", help=f"exit 1 if a step takes more than {BUDGET} x flat")
    options = parser.parse_args()
    try:
        jax.config.update("jax_default_device", jax.devices(options.platform)[0])
    except RuntimeError:
        print(
            f"There is no {options.platform} here (jax has {jax.default_backend()}): nothing was measured. "
            "`--platform cpu` measures the same on the CPU."
        )
        return 0

    sizes, steps, rounds = [(16, 8), (256, 256), (1024, 1024)], 50, 21
    if options.platform == "cpu":
        sizes, steps, rounds = sizes[:2], 10, 11  # the largest takes seconds a step
    if options.quick:
        sizes, steps, rounds = sizes[:1], 10, 5
    results = {}
    for width, rows in sizes:
        results[f"width {width}, batch {rows}"] = measure(width, rows, steps, rounds)
    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=140)
    console.print(as_table(results))
    if options.json:
        plain = {
            name: {"device": device, **{form: asdict(one) for form, one in figures.items()}}
            for name, (device, figures) in results.items()
        }
        options.json.write_text(json.dumps(plain, indent=2) + "\n")
    slow = [name for name, (_, by) in results.items() if by[PARTAX].step > BUDGET * by[FLOOR].step]
    if slow:
        console.print(f"More than {BUDGET} x flat: " + "; ".join(slow))
    return 1 if slow and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
