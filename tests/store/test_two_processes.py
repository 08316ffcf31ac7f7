"""Guards the promise that a second process loads what has not changed, and traces what has."""

from pathlib import Path
from typing import NamedTuple

import pytest

from processes import python

pytestmark = pytest.mark.slow

TOP = """
import argparse, collections, contextvars, dataclasses, enum, functools, logging, os, pathlib, time, types, typing
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, optax, partax
from absl import flags
from flax import linen, nnx, struct
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
    "a flag of absl": "F = flags.FlagValues()\nk = flags.DEFINE_integer('k', 1, '', flag_values=F)\n"
    "F(['a', '--k=VALUE'])\ndef f(x): return x * F.k * k.value",
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
    "a module that is loaded by the function": "def f(x):\n  from settings import K\n  return x * K",
    "a file of a package": "import package.part\ndef f(x): return package.part.scaled(x)",
    "an attribute that is set on a module": "import settings\nsettings.L = VALUE\ndef f(x): return x * settings.L",
    "a name that is bound again": "g = jnp.sin\nif VALUE == 3: g = jnp.cos\ndef f(x): return g(x)",
    "a list and a set": "L = [1, {1, VALUE}]\ndef f(x): return x * max(L[1])",
    "a queue and a default": "D = collections.defaultdict(lambda: collections.deque([VALUE]))\n"
    "def f(x): return x * D['a'][0]",
    "a lambda and a keyword": "f = lambda x, *, k=VALUE: x * k",
    "a comprehension": "def f(x): return x * sum([i for i in range(VALUE)])",
    "a generator": "def g(): yield VALUE\ndef f(x): return x * next(g())",
    "a format": "K = VALUE\ndef f(x): return x * 2 if f'{K:03d}' == '002' else x * 3",
    "a match": "K = VALUE\ndef f(x):\n  match K:\n    case 2: return x * 2\n    case _: return x * 3",
    "what is caught": "D = {2: 5}\nK = VALUE\ndef f(x):\n  try: return x * D[K]\n  except KeyError: return x",
    "a registry": "R = {}\ndef register(g): R[g.__name__] = g\n@register\ndef g(x): return x * VALUE\n"
    "def f(x): return R['g'](x)",
    "an overridden method": "class A:\n  def g(self, x): return x\nclass B(A):\n  def g(self, x): return x * VALUE\n"
    "b = B()\ndef f(x): return b.g(x)",
    "a method of the base": "class A:\n  def g(self, x): return x * VALUE\nclass B(A):\n"
    "  def g(self, x): return super().g(x)\nb = B()\ndef f(x): return b.g(x)",
    "a method that is set": "class C: pass\nC.g = lambda self, x: x * VALUE\nc = C()\ndef f(x): return c.g(x)",
    "a property": "class C:\n  @property\n  def k(self): return VALUE\nc = C()\ndef f(x): return x * c.k",
    "a cached property": "class C:\n  @functools.cached_property\n  def k(self): return VALUE\nc = C()\n"
    "def f(x): return x * c.k",
    "a class method": "class C:\n  @classmethod\n  def k(cls): return VALUE\ndef f(x): return x * C.k()",
    "__call__": "class C:\n  def __call__(self, x): return x * VALUE\nf = C()",
    "__index__": "class C:\n  def __index__(self): return VALUE\nc = C()\ndef f(x): return x * len(range(c))",
    "an operator": "class C:\n  def __add__(self, x): return x * VALUE\nc = C()\ndef f(x): return c + x",
    "a descriptor": "class D:\n  def __get__(self, o, t): return VALUE\nclass C: k = D()\nc = C()\n"
    "def f(x): return x * c.k",
    "a decorator of a class": "def by(cls): cls.k = VALUE; return cls\n@by\nclass C: pass\ndef f(x): return x * C.k",
    "a keyword of a class": "class A:\n  def __init_subclass__(cls, k): cls.k = k\nclass B(A, k=VALUE): pass\n"
    "def f(x): return x * B.k",
    "__init__ of the base": "class A:\n  def __init__(self): self.k = VALUE\nclass B(A): pass\n"
    "def f(x): return x * B().k",
    "the default of a field": "@dataclasses.dataclass\nclass C: k: int = VALUE\ndef f(x): return x * C().k",
    "the metadata of a field": "@dataclasses.dataclass\nclass C: a: int = dataclasses.field(metadata={'k': VALUE})\n"
    "def f(x): return x * dataclasses.fields(C)[0].metadata['k']",
    "a method of an enum": "class E(enum.Enum):\n  A = 1\n  def k(self): return VALUE\nARGUMENTS = (X, E.A)\n"
    "def f(x, e): return x * e.k()",
    "all members of an enum": "class E(enum.Enum): A = VALUE\ndef f(x): return x * sum(e.value for e in E)",
    "a method of a tree": "@jax.tree_util.register_pytree_node_class\nclass T:\n  def __init__(self, a): self.a = a\n"
    "  def tree_flatten(self): return (self.a * VALUE,), None\n"
    "  def tree_unflatten(aux, children): return T(*children)\ndef f(x): return jax.tree.leaves(T(x))[0]",
    "how a tree is built": "class T: pass\ndef build(aux, children): t = T(); t.a = children[0] * VALUE; return t\n"
    "jax.tree_util.register_pytree_node(T, lambda t: ((t.a,), None), build)\n"
    "def f(x): return jax.tree.map(lambda a: a, build(None, (x,))).a",
    "what a structure holds": "class T: pass\nclass K:\n  def __init__(self): self.k = VALUE\n"
    "  def __repr__(self): return 'K'\nt, k = T(), K()\n"
    "jax.tree_util.register_pytree_node(T, lambda t: ((), k), lambda aux, children: aux)\n"
    "s = jax.tree.structure(t)\ndef f(x): return x * jax.tree.unflatten(s, ()).k",
    "a child that becomes static": "@struct.dataclass\nclass C:\n  k: object = struct.field(pytree_node=VALUE == 2)\n"
    "def f(x): return jax.tree.map(lambda a: a * 2, C(x)).k",
    "a field that becomes static": "class M(eqx.Module): k: object = eqx.field(static=VALUE == 2)\n"
    "def f(x): return x * (1 + len(jax.tree.leaves(M(3))))",
    "a rule of custom_vjp": "@jax.custom_vjp\ndef g(x): return x\n"
    "g.defvjp(lambda x: (x, None), lambda _, c: (c * VALUE,))\ndef f(x): return jax.grad(lambda x: g(x).sum())(x)",
    "a rule of custom_jvp": "@jax.custom_jvp\ndef g(x): return x\n"
    "g.defjvp(lambda p, t: (g(*p), t[0] * VALUE))\ndef f(x): return jax.grad(lambda x: g(x).sum())(x)",
    "an axis of vmap": "A = VALUE - 2\ndef f(x): return jax.vmap(lambda r: r * x, in_axes=A)(x[:, None] * x ** 2)",
    "the length of a scan": "N = VALUE\ndef f(x): return jax.lax.scan(lambda c, _: (c * 2, None), x, length=N)[0]",
    "a JAX array": "A = jnp.array([1.0, VALUE, 1.0])\ndef f(x): return x * A",
    "a random key": "K = jax.random.key(VALUE)\ndef f(x): return x * jax.random.normal(K, (3,))",
    "a dtype": "T = [jnp.float32, jnp.int32][VALUE - 2]\ndef f(x): return (x / 2).astype(T)",
    "a function as an argument": "ARGUMENTS = (X, lambda x: x * VALUE)\ndef f(x, g): return g(x)",
    "a schedule": "S = optax.linear_schedule(1.0, 0.0, VALUE * 2)\ndef f(x): return x * S(1)",
    "a property of a linen module": "class N(linen.Module):\n  @property\n  def k(self): return VALUE\n"
    "  def __call__(self, x): return x * self.k\nnet = N()\ndef f(x): return net.apply({}, x)",
    "a type of Variable": "T = [nnx.Param, nnx.BatchStat][VALUE - 2]\nclass N(nnx.Module):\n"
    "  def __init__(self): self.a = nnx.Param(X); self.b = nnx.BatchStat(X + 1)\ng, s = nnx.split(N())\n"
    "ARGUMENTS = (s,)\ndef f(s): return jax.tree.leaves(nnx.state(nnx.merge(g, s), T))[0]",
    "a setting of jax": "SETTING = lambda: jax.enable_x64(VALUE == 3)\n"
    "def f(x): return x * jnp.arange(3).dtype.itemsize",
    "another setting": "SETTING = lambda: jax.default_matmul_precision(['float32', 'bfloat16'][VALUE - 2])\n"
    "def f(x): return x @ x",
    "what a folder's path is": "P = pathlib.Path('VALUE')\ndef f(x): return x * int((P / 'a').parent.name)",
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
    "a path that is read": ("P = pathlib.Path(__file__)\ndef f(x): return x + 0 * len(P.read_text())", "'P.open'"),
    "an array's file": ("from numpy import load\ndef f(x): return x if len(x) else load('a')", "'load' of numpy"),
    "the environment": ("def f(x): return x * len(os.environ['JAX_PLATFORMS'])", "'os.environ"),
    "a context variable": ("V = contextvars.ContextVar('v', default=2)\ndef f(x): return x * V.get()", "'V' (global"),
    "a module that may be there": (
        "def f(x):\n  try: import absent\n  except ImportError: return x",
        "the module 'absent', which is not imported yet",
    ),
}

MAIN = """
import contextlib, importlib, os, sys, warnings
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
        with getattr(module, "SETTING", contextlib.nullcontext)():
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
    (folder / "package").mkdir(exist_ok=True)
    (folder / "package" / "part.py").write_text(f"def scaled(x): return x * {value}\n")
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
