"""Runs modules of a user's as processes do that come one after the other, with one folder of programs.

python user_modules.py FOLDER    what a process of its own does
"""

import gc
import os
import pickle
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import partax
from processes import python
from short_programs import imported
from stored import written

PACKAGE = Path(partax.__file__).parents[1]
NAME = "module_of_the_user"
MARK = "«(.*?)→(.*?)»"
TOP = "import dataclasses, enum, functools\nimport jax, jax.numpy as jnp, equinox as eqx, numpy as np\n"


# A module whose function is called with three numbers, and gives them twice as large, as they are, and a text.
SOURCE = "import jax, jax.numpy as jnp\ndef f(x): return x * 2, x, 'a'\nmake = lambda: f"


def module_of(row: str, top: str = TOP) -> str:
    """The module of a row of a table: what it defines → what its function takes an array times, or all of it.

    What is called is what `make` gives, which is `f` where the module has none.
    """
    setup, arrow, value = row.partition(" → ")
    source = f"{setup}\ndef f(x): return x * {value}" if arrow else row
    has_make = any(it in source for it in ("make=", "make =", "def make"))
    return top + source + ("\n" if has_make else "\nmake = lambda: f\n")


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


def alike(found: Any, right: Any) -> bool:
    """Whether two results are the same but for rounding."""
    if jax.tree.structure(found) != jax.tree.structure(right):
        return False
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True)
    return all(
        a == b
        if isinstance(b, str)
        else jax.typeof(a) == jax.typeof(b) and np.allclose(a, b, rtol=1e-5, equal_nan=True)
        for a, b in pairs
    )


class Told(NamedTuple):
    """What another process tells of a module."""

    value: str
    traces: int
    is_right: bool


def process(sources: dict[str, str], folder: Path, **environment: str) -> dict[str, Told]:
    """Runs modules in a process of its own, in a folder that processes before it have run in."""
    modules = folder / "modules"
    modules.mkdir(exist_ok=True)
    files = {name: f"of_{re.sub('[ -]', '_', name)}" for name in sources}  # no module of Python's is called so
    for name, source in sources.items():
        (modules / f"{files[name]}.py").write_text(source, encoding="utf-8")
    path = os.pathsep.join(map(str, (PACKAGE, Path(__file__).parents[1])))
    python("-W", "error", __file__, str(folder), PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1", **environment)
    told = pickle.loads((folder / "told").read_bytes())
    return {name: Told(*told[file]) for name, file in files.items()}


def in_three_processes(sources: dict[str, str], folder: Path, **environment: str) -> list[dict[str, Told]]:
    """What two processes tell of modules alike, and a third one, before which `«this→that»` is replaced."""
    versions = [
        {name: re.sub(MARK, text, it, flags=re.DOTALL) for name, it in sources.items()} for text in (r"\1", r"\2")
    ]
    assert all(versions[0][name] != versions[1][name] for name in sources)
    # What need not be traced: how a module is written down, and what its function does not read.
    otherwise = "# A module.\n\n{}\nUNRELATED = 3\ndef unrelated(): return 1\n"
    again = {name: otherwise.replace("{}", it) for name, it in versions[0].items()}
    told = [process(it, folder, **environment) for it in (versions[0], again, versions[1])]
    assert [{name: it for name, it in each.items() if not it.is_right} for each in told] == [{}, {}, {}]
    return told


def assert_changes_are_seen(sources: dict[str, str], folder: Path, **environment: str) -> None:
    """Modules whose functions are stored give another value once they are changed."""
    first, again, found = in_three_processes(sources, folder, **environment)
    assert [name for name, it in first.items() if it.traces != 1] == []
    assert [name for name, it in again.items() if it.traces != 0] == [], "what has not changed is loaded"
    assert {name: it.value for name, it in again.items()} == {name: it.value for name, it in first.items()}
    assert [name for name, it in found.items() if it.value == first[name].value] == [], "else nothing has changed"


def tell(folder: Path) -> None:
    """What such a process does."""
    sys.path.insert(0, str(folder / "modules"))
    told: dict[str, tuple[str, int, bool]] = {}
    with partax.store(folder / "store"):
        for file in sorted(folder.glob("modules/*.py")):
            found = called(__import__(file.stem))
            text = f"{jax.tree.structure(found.value)} {[repr(it) for it in jax.tree.leaves(found.value)]}"
            told[file.stem] = (text, found.traces, alike(found.value, found.right))
    (folder / "told").write_bytes(pickle.dumps(told))


if __name__ == "__main__":
    tell(Path(sys.argv[1]))
