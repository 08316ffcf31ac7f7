"""Measures everything and draws it: results of all benchmarks and sweeps as JSON, and from these the plots.

    python bench/record.py [--quick] [--only NAME] [--into FOLDER]

Writes `bench/results/NAME.json`, and what `docs/plots.py` makes of all of them. `--into` writes both into another
folder, and leaves what is recorded here as it is. For figures that mean something, leave the machine alone meanwhile:
all of it takes about 80 minutes, with `--quick` 40, of which `warm_start` takes 35 and 25. What needs a GPU is measured
by `--only gpu` alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

try:
    import tqdm
except ImportError as error:
    sys.exit(f'This benchmark needs {error.name}: run pip install "partax[bench]"')

BENCH = Path(__file__).parent
RESULTS = BENCH / "results"
PLOTS = BENCH.parent / "docs" / "plots.py"

BENCHMARKS = (
    *("dispatch", "families", "nnx", "partition", "trees", "tracing", "recompile", "accelerate", "threads"),
    *("distributed", "doctor", "layers", "bound", "steps", "warm_start", "gpu"),
)
SWEEPS = ("arrays", "nodes", "work", "leaves", "retraces", "devices", "nnx", "bound", "steps")
COMMANDS = {name: [f"{name}.py"] for name in BENCHMARKS} | {
    f"sweep_{name}": ["sweeps.py", "--only", name] for name in SWEEPS
}
"""Each in a process of its own, so that none finds the caches and the memory of another."""
QUICK = {"distributed": ["--rows", "device"]}
"""What a quick run measures of the slowest: no rows of several processes."""
NEEDS_FLAX = ("nnx", "sweep_nnx")
NEEDS_GPU = ("gpu",)


def record(name: str, results: Path, quick: bool) -> None:
    """Where it fails, what it printed; the earlier results are as they were then."""
    file = results / f"{name}.json"
    unfinished = file.with_suffix(".unfinished")
    command = [sys.executable, str(BENCH / COMMANDS[name][0]), *COMMANDS[name][1:], "--json", str(unfinished)]
    # The budgets are for a CPU.
    environment = os.environ if name in NEEDS_GPU else {**os.environ, "JAX_PLATFORMS": "cpu"}
    if quick:
        command += ["--quick", *QUICK.get(name, [])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode or not unfinished.exists():
        unfinished.unlink(missing_ok=True)
        sys.exit(f"{name} ended with {done.returncode}; its output:\n{done.stdout}{done.stderr}")
    unfinished.replace(file)


def chosen(only: str | None) -> list[str]:
    names = [only] if only else [name for name in COMMANDS if name not in NEEDS_GPU]
    if find_spec("flax") is None:
        left_out = [name for name in names if name in NEEDS_FLAX]
        if left_out:
            print(f"There is no Flax here: {', '.join(left_out)} left out")
        names = [name for name in names if name not in left_out]
    return names


def is_editable() -> bool:
    origin = distribution("partax").read_text("direct_url.json")
    return origin is not None and bool(json.loads(origin).get("dir_info", {}).get("editable"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure everything, and draw it.")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and fewer places of everything")
    parser.add_argument("--only", metavar="NAME", choices=COMMANDS, help="one of " + ", ".join(COMMANDS))
    parser.add_argument("--into", metavar="FOLDER", type=Path, help="write the results and what is drawn here")
    options = parser.parse_args()
    results = options.into / "results" if options.into else RESULTS
    results.mkdir(parents=True, exist_ok=True)
    if is_editable():
        print("partax is installed editable: its import looks whether to rebuild, which counts as import time")
    with tqdm.tqdm(chosen(options.only), unit="benchmark", disable=None) as bar:
        for name in bar:
            bar.set_postfix_str(name)
            begin = time.perf_counter()
            record(name, results, options.quick)
            bar.write(f"{name}: {time.perf_counter() - begin:.0f} s")

    for name in NEEDS_GPU if options.into else ():
        shutil.copy(RESULTS / f"{name}.json", results)
    missing = [name for name in COMMANDS if not (results / f"{name}.json").exists()]
    if missing:
        print(f"Nothing is drawn: {results} has no {', '.join(missing)}")
        return 0
    drawing = [sys.executable, str(PLOTS), "--results", str(results)]
    if options.into:
        drawing += ["--into", str(options.into)]
    return subprocess.run(drawing).returncode


if __name__ == "__main__":
    sys.exit(main())
