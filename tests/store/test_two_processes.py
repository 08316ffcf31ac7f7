"""Guards the promise that a second process loads what has not changed, and traces what has."""

from pathlib import Path
from typing import NamedTuple

import pytest

from processes import python

pytestmark = pytest.mark.slow

TOP = """
import argparse, collections, dataclasses, enum, functools, logging, os, time, types, typing
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, optax, partax
from flax import linen, nnx
X = jnp.arange(1.0, 4.0)
ARGUMENTS = (X,)
"""

# What a function reads, where VALUE is 2 and then 3.
CHANGES = {
    "a global": "K = VALUE\ndef f(x): return x * K",
    "a closure": "def make(k):\n  def f(x): return x * k\n  return f\nf = make(VALUE)",
    "a default": "def f(x, k=VALUE): return x * k",
    "its own code": "def f(x): return x * VALUE",
    "a helper function": "def g(x): return x * VALUE\ndef f(x): return g(x)",
    "a cached helper": "@functools.lru_cache\ndef g(): return VALUE\ndef f(x): return x * g()",
    "an attribute of a function": "def g(): pass\ng.k = VALUE\ndef f(x): return x * g.k",
    "a dictionary": "D = {'a': [1, VALUE]}\ndef f(x): return x * D['a'][1]",
    "a class attribute": "class C: k = VALUE\ndef f(x): return x * C.k",
    "a config object": "class C:\n  def __init__(self, k): self.k = k\nCFG = C(VALUE)\ndef f(x): return x * CFG.k",
    "argparse": "P = argparse.ArgumentParser()\nP.add_argument('--k', type=int)\nA = P.parse_args(['--k', 'VALUE'])\n"
    "def f(x): return x * A.k",
    "a frozen argument": "@dataclasses.dataclass(frozen=True)\nclass C: k: int\nARGUMENTS = (X, C(VALUE))\n"
    "def f(x, c): return x * c.k",
    "a NamedTuple": "class T(typing.NamedTuple):\n  k: int\nT1 = T(VALUE)\ndef f(x): return x * T1.k",
    "an enum member": "class E(enum.Enum): A = VALUE\ndef f(x): return x * E.A.value",
    "which enum member": "class E(enum.Enum):\n  A2 = 2\n  A3 = 3\nARGUMENTS = (X, E.AVALUE)\n"
    "def f(x, e): return x * e.value",
    "a NumPy array": "A = np.array([1.0, VALUE, 1.0])\ndef f(x): return x * A",
    "a method": "class M(eqx.Module):\n  w: object\n  def __call__(self, x): return self.w * x * VALUE\n"
    "ARGUMENTS = (M(X), X)\ndef f(m, x): return m(x)",
    "a static field": "class M(eqx.Module):\n  w: object\n  k: int = eqx.field(static=True)\n"
    "ARGUMENTS = (M(X, VALUE),)\n"
    "def f(m): return m.w * m.k",
    "what replaces": "@dataclasses.dataclass\nclass C:\n  a: int\n  def __post_init__(self): self.k = VALUE\n"
    "CFG = C(1)\n"
    "def f(x): return x * dataclasses.replace(CFG, a=2).k",
    "a partial": "def g(k, x): return x * k\nf = functools.partial(g, VALUE)",
    "a bound method": "class T:\n  def __init__(self): self.k = VALUE\n  def step(self, x): return x * self.k\n"
    "f = T().step",
    "an optimizer": "O = optax.sgd(VALUE * 0.1)\ndef f(x): return O.update(x, O.init(x))[0]",
    "a linen module": "class N(linen.Module):\n  k: int\n  @linen.compact\n  def __call__(self, x): return x * self.k\n"
    "net = N(VALUE)\ndef f(x): return net.apply({}, x)",
    "an nnx module": "class N(nnx.Module):\n  def __init__(self): self.k = VALUE; self.w = nnx.Param(X)\n"
    "g, s = nnx.split(N())\nARGUMENTS = (s,)\ndef f(s): return nnx.merge(g, s).w[...] * nnx.merge(g, s).k",
    "a jitted helper": "@jax.jit\ndef g(x): return x * VALUE\ndef f(x): return g(x)",
    "a user's module": "import settings\ndef f(x): return x * settings.K",
    "a decorator": "def by(k):\n  def wrap(g):\n    @functools.wraps(g)\n    def run(x): return g(x) * k\n"
    "    return run\n"
    "  return wrap\n@by(VALUE)\ndef f(x): return x",
}

# What a program does beside, which is no reason not to store it.
TRAINER = "class T:\n  def __init__(self): self.k = 2\n"
STORED = {
    "a logger": "log = logging.getLogger('a')\ndef f(x):\n  log.debug('trace')\n  return x * 2",
    "a logger of __init__": "log = logging.getLogger('a')\nclass M(eqx.Module):\n  w: object\n"
    "  def __init__(self, w): log.debug('made'); self.w = w\nARGUMENTS = (M(X),)\ndef f(m): return m.w * 2",
    "a counter": "n = 0\nseen = []\ndef f(x):\n  global n\n  n += 1\n  seen.append(1)\n  return x * 2",
    "a memo": "memo = {}\ndef g(k):\n  if k not in memo: memo[k] = k * 2\n  return memo[k]\ndef f(x): return x * g(1)",
    "a clock of another method": TRAINER + "  def step(self, x): return x * self.k\n"
    "  def fit(self): return time.time()\nf = T().step",
    "a file of another method": TRAINER + "  def step(self, x): return x * self.k\n"
    "  def save(self, path): open(path, 'w').write('a')\nf = T().step",
    "the environment in __init__": "class M(eqx.Module):\n  w: object\n"
    "  def __init__(self, w): self.w = w; os.environ.get('A')\nARGUMENTS = (M(X),)\ndef f(m): return m.w * 2",
    "a default factory": "@dataclasses.dataclass\nclass C:\n  k: int = 2\n"
    "  folder: str = dataclasses.field(default_factory=lambda: os.getcwd())\nCFG = C()\ndef f(x): return x * CFG.k",
    "an optax state as a result": "O = optax.adam(0.1)\nARGUMENTS = (X, O.init(X))\ndef f(x, s): return O.update(x, s)",
    "a warning": "import warnings\ndef f(x):\n  warnings.warn('slow', stacklevel=2)\n  return x * 2",
}

REFUSED = {
    "a clock": ("def f(x): return x + 0 * time.time()", "'time.time' (global of refused_0.py)"),
    "chance": ("import random\ndef f(x): return x + 0 * random.random()", "(global of refused_1.py)"),
    "a generator": (
        "rng = np.random.default_rng(0)\ndef f(x): return x + 0 * rng.normal()",
        "'rng' (global of refused_2.py)",
    ),
    "a method that is named": (
        TRAINER + "  def now(self): return time.time()\n  def step(self, x): return x + 0 * self.now()\nf = T().step",
        "'time.time' (global of refused_3.py)",
    ),
}

MAIN = """
import importlib, os, sys, warnings
import jax, partax
warnings.simplefilter("ignore")

def is_hashable(value):
    try:
        hash(value)
    except TypeError:  # a module that holds arrays
        return False
    return True

def compiled(f, arguments):
    static = [i for i, x in enumerate(arguments) if not all(map(partax.is_array, jax.tree.leaves(x)))]
    if "PLAIN" not in os.environ or any(not is_hashable(arguments[i]) for i in static):
        return partax.filter_jit(f)
    return partax.jit(f, static_argnums=static)

with partax.explain():
    for name in sys.argv[1:]:
        module = importlib.import_module(name)
        step = compiled(module.f, module.ARGUMENTS)
        results = step(*module.ARGUMENTS), module.f(*module.ARGUMENTS)
        same = jax.tree.map(lambda a, b: bool(abs(a - b).max() < 1e-5), *results)
        info = step.cache_info()
        print(name, info.traces, info.loads, all(jax.tree.leaves(same)))
"""


class Call(NamedTuple):
    traces: int
    loads: int
    is_right: bool


def run(folder: Path, sources: dict[str, str], value: int = 2, **environment: str) -> tuple[dict[str, Call], str]:
    """What became of the first call of each module in a process, and what the process says."""
    (folder / "settings.py").write_text(f"K = {value}\ndef scaled(x): return x * {value}\n")
    (folder / "main.py").write_text(MAIN)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(TOP + source.replace("VALUE", str(value)))
    variables = {"PARTAX_STORE": str(folder / "store"), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    done = python(str(folder / "main.py"), *sources, **variables)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: Call(int(traces), int(loads), right == "True") for name, traces, loads, right in lines}, done.stderr


def modules_of(sources: dict[str, str], prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """The sources by the names of their modules, and what each module tries."""
    names = {f"{prefix}_{i}": name for i, name in enumerate(sources)}
    return dict(zip(names, sources.values(), strict=True)), names


def kinds(calls: dict[str, Call], names: dict[str, str], expected: Call) -> list[str]:
    """What did not become of a call what should."""
    return [f"{names[module]}: {call}" for module, call in calls.items() if call != expected]


@pytest.mark.parametrize("environment", [{}, {"PLAIN": "1"}], ids=["filter_jit", "jit"])
def test_what_is_the_same_is_loaded_and_what_has_changed_is_traced(environment: dict[str, str], tmp_path: Path) -> None:
    sources, names = modules_of(CHANGES | STORED, "module")
    changed = [module for module, name in names.items() if name in CHANGES]
    assert kinds(run(tmp_path, sources, **environment)[0], names, Call(1, 0, True)) == []
    again = run(tmp_path, sources, PYTHONHASHSEED="7", **environment)[0]
    assert kinds(again, names, Call(0, 1, True)) == []
    again = run(tmp_path, {module: sources[module] for module in changed}, value=3, **environment)[0]
    assert kinds(again, names, Call(1, 0, True)) == []


def test_what_cannot_be_proven_is_named_and_not_stored(tmp_path: Path) -> None:
    sources, names = modules_of({name: source for name, (source, _) in REFUSED.items()}, "refused")
    calls, said = run(tmp_path, sources)
    assert kinds(calls, names, Call(1, 0, True)) == []
    assert [name for name, (_, reason) in REFUSED.items() if reason not in said] == []
    assert list((tmp_path / "store").glob("*.partax")) == []
    last = said.strip().splitlines()[-1]
    assert "the store has neither stored nor loaded anything" in last and "'time.time'" in last


def test_another_environment_is_another_program(tmp_path: Path) -> None:
    source = {"module": "def f(x): return x * 2"}
    for name, value in (
        ("JAX_ENABLE_X64", "0"),  # as by default
        ("JAX_ENABLE_X64", "1"),
        ("JAX_DEFAULT_PRNG_IMPL", "rbg"),
        ("JAX_DEFAULT_MATMUL_PRECISION", "float32"),
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=3"),
        ("EQX_ON_ERROR", "nan"),
    ):
        assert run(tmp_path, source, **{name: value})[0] == {"module": Call(1, 0, True)}, name


def test_another_version_of_a_library_is_another_program(tmp_path: Path) -> None:
    source = {"module": "import library\npartax.declare_pure('library')\ndef f(x): return library.twice(x)"}
    for version, traces in (("1.0", 1), ("1.0", 0), ("1.1", 1)):
        described = tmp_path / "library-1.dist-info"
        described.mkdir(exist_ok=True)
        (tmp_path / "library.py").write_text("def twice(x):\n    return x * 2\n")
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: library\nVersion: {version}\n")
        (described / "RECORD").write_text("library.py,sha256=1,28\nlibrary-1.dist-info/METADATA,sha256=1,9\n")
        assert run(tmp_path, source)[0] == {"module": Call(traces, 1 - traces, True)}
