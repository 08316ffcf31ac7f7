"""Guards the promise that a stored program is loaded in a process that differs in nothing that counts, and only there:
libraries, settings, flags and files, each changed between two real processes."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import partax
from processes import python
from short_programs import rows_of

rows = rows_of(globals())

PACKAGE = Path(partax.__file__).parents[1]

MAIN = """
import sys, jax, jax.numpy as jnp, equinox as eqx, partax, inplace, settings, helpers.scale
from library import twice
partax.pure("library")
class Model(eqx.Module):
    weight: jax.Array
    def __call__(self, x): return self.weight @ x
def f(model, x):
    assert x.ndim == 1
    key = jax.random.key(3)
    noise = jax.random.uniform(key, x.shape)
    return inplace.plus(twice(model(x))) * settings.RATE + helpers.scale.scale(jnp.sin(x)) + noise, x.astype(float)
step = partax.filter_jit(f)
arguments = Model(jnp.eye(3) * 1.5), jnp.arange(3.0)
with partax.explain():
    found = step(*arguments)
right = f(*arguments)
assert all(a.dtype == b.dtype and jnp.allclose(a, b, rtol=1e-3) for a, b in zip(found, right))
print("traces", step.cache_info().traces)
"""


class World:
    """The files of a user, their installed library, one that is installed in place, and one that it stands on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {"JAX_PLATFORMS": "cpu"}
        self.options: list[str] = []
        self.cwd = root
        self.write("user/train.py", MAIN)
        self.write("modules/settings.py", "RATE = 2.0\nOTHER = 3\n")
        self.write("modules/helpers/__init__.py", "")
        self.write("modules/helpers/scale.py", "def scale(x):\n    return x * 3\n")
        self.write("source/inplace.py", "def plus(x):\n    return x + 1\n")
        self.installed("inplace", "1.0", '{"dir_info": {"editable": true}, "url": "file:///source"}')
        self.write("site-packages/library.py", "def twice(x):\n    return x * 2\n")
        self.installed("library", "1.0")
        self.installed("support", "4.0")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new, 1))

    def installed(self, name: str, version: str, origin: str = "{}") -> None:
        folder = f"site-packages/{name}-1.dist-info"
        required = "Requires-Dist: support>=2\n" if name == "library" else ""
        self.write(
            f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}\nText.\n"
        )
        self.write(f"{folder}/direct_url.json", origin)
        self.write(f"{folder}/RECORD", f"{name}.py,sha256=1,28\n{name}-1.dist-info/METADATA,sha256=1,9\n")

    def run(self) -> tuple[int, str]:
        """How often a process traces, and what it says of it."""
        paths = [*(self.root / it for it in ("first", "modules", "source", "site-packages")), PACKAGE]
        script, path = str(self.root / "user" / "train.py"), os.pathsep.join(map(str, paths))
        variables = {"PARTAX_STORE": str(self.root / "store"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path}
        done = python(*self.options, script, cwd=self.cwd, **variables, **self.environment)
        return int(re.findall(r"traces (\d+)", done.stdout)[0]), done.stderr


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world in which a process has stored its program."""
    world = World(tmp_path_factory.mktemp("world") / "first")
    assert world.run()[0] == 1
    return world.root


def again(stored: Path, tmp_path: Path, change: Callable[[World], object]) -> tuple[int, str]:
    world = World(tmp_path / "second")
    shutil.copytree(stored / "store", world.root / "store")
    (world.root / "store").chmod(0o700)
    change(world)
    return world.run()


Change = Callable[[World], object]


def edit(file: str, old: str, new: str) -> Change:
    return lambda world: world.edit(file, old, new)


def write(file: str, text: str) -> Change:
    return lambda world: world.write(file, text)


def installed(*given: str) -> Change:
    return lambda world: world.installed(*given)


def variable(name: str, value: str) -> Change:
    before = os.environ.get(name, "") if name == "XLA_FLAGS" else ""
    return lambda world: world.environment.update({name: f"{before} {value}".strip()})


IN_PLACE, COMMIT = '{"dir_info": {"editable": true}}', '{"vcs_info": {"vcs": "git", "commit_id": "b"}}'
PLAIN = str(1 - int(os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")))
# How it is done → what with → what `explain` names where the program is traced for it.
_TRACED = rows(r"""
the version of a library: installed → library → 1.1 → the version of a library
the version of what it stands on: installed → support → 4.1 → the version of a library
a library that becomes editable: installed → library → 1.0 → {IN_PLACE} → installed in place
another commit of a library of one version: installed → library → 1.0 → {COMMIT} → the version of a library
a file of a library of one version: write → site-packages/library-1.dist-info/RECORD → library.py,sha256=2,28
  → the version of a library
a copy of a library that is found first: write → first/library.py → def twice(x): return x * 3 → another is imported
the file of an editable library: edit → source/inplace.py → x + 1 → x + 2 → inplace.py
a helper in a package: edit → modules/helpers/scale.py → x * 3 → x * 4 → scale.py
a value of another module: edit → modules/settings.py → 2.0 → 2.5 → RATE
another module that is found first: write → first/settings.py → RATE = 7.0 → RATE
a function of jax that the user replaces: edit → modules/settings.py → OTHER
  → import jax.numpy as jnp\njnp.sin = jnp.cos\nOTHER → sin
a function of a library that the user replaces: edit → modules/settings.py → OTHER
  → import library\nlibrary.twice = lambda x: x\nOTHER → twice
a method of a class that the user replaces: edit → user/train.py → step =
  → Model.__call__ = lambda self, x: x - 1\nstep = → traced
the generator of random numbers: variable → JAX_DEFAULT_PRNG_IMPL → rbg → jax_default_prng_impl
the promotion of ranks: variable → JAX_NUMPY_RANK_PROMOTION → warn → jax_numpy_rank_promotion
what the compiler optimises: variable → JAX_DISABLE_MOST_OPTIMIZATIONS → {PLAIN} → jax_disable_most_optimizations
a flag of XLA: variable → XLA_FLAGS → --xla_cpu_enable_fast_math=true → environment variable
a switch of Equinox: variable → EQX_ON_ERROR → nan → environment variable
a setting in the program: edit → user/train.py → step =
  → jax.config.update('jax_random_seed_offset', 5)\nstep = → jax_random_seed_offset
a context of settings: edit → user/train.py → with partax
  → with jax.default_matmul_precision('float32'), partax → matmul_precision
""")
WAYS: dict[str, Callable[..., Change]] = {"edit": edit, "write": write, "installed": installed, "variable": variable}
TRACED: dict[str, tuple[Change, str]] = {
    **{name: (WAYS[way](*given), named) for name, row in _TRACED.items() for way, *given, named in [row.split(" → ")]},
    "a library of no version": (
        lambda w: shutil.rmtree(w.root / "site-packages/library-1.dist-info"),
        "whose version nobody knows",
    ),
    "a copy of what a library stands on": (
        lambda w: [w.write("first/support.py", ""), w.edit("user/train.py", "import sys", "import sys, support")],
        "another is imported",
    ),
    "another package that is found first": (
        lambda w: [w.write("first/helpers/__init__.py", ""), w.write("first/helpers/scale.py", "scale = lambda x: -x")],
        "scale.py",
    ),
    "x64": (variable("JAX_ENABLE_X64", "1"), ""),  # which is another program, not one that has changed
    "no assertions": (lambda w: w.options.append("-O"), "train.py"),
}

LOADED: dict[str, Change] = {
    "nothing": lambda w: None,
    "another working directory": lambda w: setattr(w, "cwd", Path("/")),
    "another seed of hashes": variable("PYTHONHASHSEED", "77"),
    "comments and lines": edit("modules/helpers/scale.py", "def", "# Why.\n\n\ndef"),
    "a docstring of a module": edit("modules/settings.py", "RATE", '"""Settings."""\nRATE'),
    "an annotation": edit("modules/helpers/scale.py", "(x)", "(x: object)"),
    "another value in a module": edit("modules/settings.py", "OTHER = 3", "OTHER = 4"),
    "another function in a module": edit("modules/settings.py", "OTHER", "def g(): return 1\nOTHER"),
    "an unrelated module": write("modules/unrelated.py", "X = 1"),
    "another installer of a library": write(
        "site-packages/library-1.dist-info/RECORD",
        "library-1.dist-info/INSTALLER,,\n../../bin/tool,sha256=3,1\n__pycache__/library.pyc,,\nlibrary.py,sha256=1,28\n",
    ),
    "an unrelated library": installed("unrelated", "3.0"),
    "a variable of the user": variable("TRAIN_RATE", "3"),
    "another time zone": variable("TZ", "Asia/Tokyo"),
    "options of the interpreter": lambda w: w.options.extend(["-X", "dev"]),
    "another import before": edit("user/train.py", "import sys", "import statistics, csv, sys"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(it, marks=[pytest.mark.nightly] * (i % 12 > 0)) for i, it in enumerate(TRACED)]
)
def test_what_counts_is_traced_and_named(name: str, stored: Path, tmp_path: Path) -> None:
    change, named = TRACED[name]
    traces, said = again(stored, tmp_path, change)
    assert traces == 1 and named in said


@pytest.mark.parametrize(
    "name", [pytest.param(it, marks=[pytest.mark.nightly] * (i > 0)) for i, it in enumerate(LOADED)]
)
def test_what_does_not_count_is_loaded(name: str, stored: Path, tmp_path: Path) -> None:
    traces, said = again(stored, tmp_path, LOADED[name])
    assert traces == 0 and "loaded from the store" in said


LATE = """
import support  # a copy, which no program of this process had before
later = partax.filter_jit(lambda model, x: f(model, x)[0] + 1)
with partax.explain():
    later(*arguments)
"""


def test_a_copy_of_a_library_that_is_imported_late_is_seen(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write("user/train.py", MAIN + LATE)
    world.write("first/support.py", "")
    _, said = world.run()
    assert said.count("another is imported") == 1
