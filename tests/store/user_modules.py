"""Runs modules of a user's as processes do that come one after the other, with one folder of programs."""

import gc
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import partax
from short_programs import imported
from stored import written

PACKAGE = Path(partax.__file__).parents[1]
NAME = "module_of_the_user"


# A module whose function is called with three numbers, and gives them twice as large, as they are, and a text.
SOURCE = "import jax, jax.numpy as jnp\ndef f(x): return x * 2, x, 'a'\nmake = lambda: f"


def assert_right(found: Any) -> None:
    """What the function of `SOURCE` gives."""
    assert np.allclose(found[0], [0, 2, 4]) and np.allclose(found[1], [0, 1, 2]) and found[2] == "a"


def start(folder: Path, source: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A process of a user's own, which runs a script in a folder; a warning is an error."""
    script = folder / "script.py"
    if not script.exists() or script.read_text() != source:  # another process may be reading it
        script.write_text(source)
    return subprocess.Popen(
        [sys.executable, "-W", "error", script.name, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "JAX_PLATFORMS": "cpu", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


WRITER = """
import sys, warnings, jax, jax.numpy as jnp, partax
warnings.filterwarnings("ignore", ".* was re-created")  # on purpose, each with another number
count = int(sys.argv[1])
def make(i):
    def f(x): return x * i + jnp.float32(i)
    return f
for i in range(count):
    step = partax.filter_jit(make(i))
    assert float(step(jnp.float32(2))) == 3 * i
    if i == 0: print("begun", flush=True)
print("done", sum(it.cache_info().loads for it in [step]))
"""


def writer(folder: Path, count: int, **environment: str) -> subprocess.Popen[str]:
    """A process that makes programs and stores them."""
    return start(folder, WRITER, str(count), **{"PARTAX_STORE": str(folder / "store"), **environment})


DAMAGES = int(os.environ.get("PARTAX_FAULTS", "30"))
IS_SHORT = DAMAGES < 1000


def damaged(whole: bytes) -> Iterator[bytes]:
    """Files that are cut, have another bit, or have zeros in one part, as after a power cut."""
    chance = np.random.default_rng(0)
    for at in range(DAMAGES):
        data = bytearray(whole)
        begin = int(chance.integers(len(data)))
        if at % 3 == 0:
            del data[begin:]
        elif at % 3 == 1:
            data[begin] ^= 1 << int(chance.integers(8))
        else:
            data[begin : begin + 512] = bytes(len(data[begin : begin + 512]))
        if data != whole:
            yield bytes(data)


class Run(NamedTuple):
    """What a process has got of a module's `make()`, and how often it has traced."""

    value: Any
    traces: int
    right: Any  # what plain Python gives in the same process


def called(module: Any, **jit: Any) -> Run:
    """Calls what a module's `make()` gives, with its `ARGUMENTS` and `KEYWORDS` if it has these; else with an array."""
    step, keywords = partax.filter_jit(module.make(), **jit), getattr(module, "KEYWORDS", {})
    given = lambda: getattr(module, "ARGUMENTS", None) or (jnp.arange(3.0),)  # another one, where it is donated
    step.clear_cache()  # of an equal function before: another process has none
    value = step(*given(), **keywords)
    traces = step.cache_info().traces
    step.clear_cache()
    return Run(value, traces, module.make()(*given(), **keywords))


def run(
    source: str, folder: Path, store: Path, change: Callable[[types.ModuleType], None] = lambda module: None, **jit: Any
) -> Run:
    """Imports a module, calls what its `make()` gives, and forgets both."""
    with partax.store(store), imported(source, folder, NAME) as module:
        change(module)
        found = called(module, **jit)
    written()
    gc.collect()
    return found
