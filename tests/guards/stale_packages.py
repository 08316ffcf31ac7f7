"""Guards the promise that what an installed package can be told counts: its settings, rules and registries, and jax's."""

from __future__ import annotations

from programs import source_of

# A package that has been installed: a folder of the path, with a function that reads a setting of its own.
INSTALLED = """
import importlib, pathlib, sys, tempfile
T = tempfile.TemporaryDirectory()
NAME = __name__ + "_package"
PLACE = pathlib.Path(T.name) / "site-packages"
(PLACE / NAME).mkdir(parents=True)
(PLACE / NAME / "__init__.py").write_text('''
import contextlib, contextvars
options = {"k": 2.0}
_k = 2.0
_var = contextvars.ContextVar("k", default=2.0)
class Config:
    k = 2.0
config = Config()
def scale(): return _k
def by_option(x): return x * options["k"]
def by_context(x): return x * _var.get()
def by_config(x): return x * config.k
def set_k(k):
    global _k
    _k = k
class Layer:
    def __call__(self, x): return x * Config.k
''')
sys.path.insert(0, str(PLACE))
package = importlib.import_module(NAME)
"""
_END = "sys.path.remove(str(PLACE))\nsys.modules.pop(NAME, None)\nT.cleanup()"
_PACKAGE = {
    **{
        name: (INSTALLED, value, change, _END)
        for name, value, change in [
            ("function of a package", "package.scale()", "package.set_k(3.0)"),
            ("attribute of a package", "package._k", "package._k = 3.0"),
            ("options of a package", "package.by_option(1.0)", "package.options['k'] = 3.0"),
            ("context of a package", "package.by_context(1.0)", "package._var.set(3.0)"),
            ("configuration of a package", "package.by_config(1.0)", "package.config.k = 3.0"),
            ("class of a package", "package.Layer()(1.0)", "package.Config.k = 3.0"),
            ("function of a package, replaced", "package.scale()", "package.scale = lambda: 3.0"),
        ]
    },
    "matplotlib": (
        "import matplotlib\nOLD = matplotlib.rcParams['lines.linewidth']",
        "matplotlib.rcParams['lines.linewidth']",
        "matplotlib.rcParams['lines.linewidth'] = 7.0",
        "matplotlib.rcParams['lines.linewidth'] = OLD",
    ),
    "scikit-learn": (
        "import sklearn\nOLD = sklearn.get_config()['working_memory']",
        "sklearn.get_config()['working_memory']",
        "sklearn.set_config(working_memory=77)",
        "sklearn.set_config(working_memory=OLD)",
    ),
    "jaxtyping": (
        "import jaxtyping",
        "(3.0 if jaxtyping.config.jaxtyping_disable else 2.0)",
        "jaxtyping.config.update('jaxtyping_disable', True)",
        "jaxtyping.config.update('jaxtyping_disable', False)",
    ),
    "chex": (
        "import chex\ndef get():\n    try: chex.assert_equal(1, 2)\n    except AssertionError: return 2.0\n    return 3.0",
        "get()",
        "chex.disable_asserts()",
        "chex.enable_asserts()",
    ),
    "flax": (
        "import flax.linen as nn\nclass M(nn.Module):\n    def __call__(self): return 2.0\n"
        "C = nn.intercept_methods(lambda next, args, kwargs, context: 3.0)",
        "M().apply({})",
        "C.__enter__()",
        "C.__exit__(None, None, None)",
    ),
    "configuration of flax": (
        "import flax\nOLD = flax.config.flax_return_frozendict",
        "(3.0 if flax.config.flax_return_frozendict else 2.0)",
        "flax.config.update('flax_return_frozendict', not OLD)",
        "flax.config.update('flax_return_frozendict', OLD)",
    ),
    "function of jax.nn, replaced": (
        "import jax\nOLD = jax.nn.relu",
        "jax.nn.relu(2.0)",
        "jax.nn.relu = lambda x: 3.0",
        "jax.nn.relu = OLD",
    ),
    "function of math, added": (
        "import math\nmath.k_of_mine = 2.0",
        "math.k_of_mine",
        "math.k_of_mine = 3.0",
        "del math.k_of_mine",
    ),
}


def _config(name: str, value: str, new: str, setup: str = "import jax") -> tuple[str, str, str, str]:
    return (
        f"{setup}\nOLD = jax.config._read({name!r})",
        value,
        f"jax.config.update({name!r}, {new})",
        f"jax.config.update({name!r}, OLD)",
    )


_JAX = {
    "kind of keys": _config("jax_default_prng_impl", "jax.random.key_data(jax.random.key(0)).size", "'rbg'"),
    "kind of keys, split": _config(
        "jax_default_prng_impl", "len(str(jax.random.key_impl(jax.random.split(jax.random.key(0))[0])))", "'unsafe_rbg'"
    ),
    "offset of seeds": _config("jax_random_seed_offset", "jax.random.uniform(jax.random.key(0))", "7"),
    "partitionable keys": _config(
        "jax_threefry_partitionable", "jax.random.uniform(jax.random.key(0), (3,))[1]", "not OLD"
    ),
    "double precision": _config("jax_enable_x64", "jax.numpy.zeros(1, float).dtype.itemsize", "True"),
    "promotion of dtypes": _config(
        "jax_numpy_dtype_promotion",
        "get()",
        "'strict'",
        (
            "import jax, jax.numpy as jnp\ndef get():\n    try: jnp.float32(1) + jnp.int32(1)\n"
            "    except Exception: return 3.0\n    return 2.0"
        ),
    ),
    "promotion of ranks": _config(
        "jax_numpy_rank_promotion",
        "get()",
        "'raise'",
        (
            "import jax, jax.numpy as jnp\ndef get():\n    try: jnp.ones(2) + jnp.ones((2, 2))\n"
            "    except ValueError: return 3.0\n    return 2.0"
        ),
    ),
    "setting that is read": _config("jax_log_compiles", "(3.0 if jax.config.jax_log_compiles else 2.0)", "not OLD"),
    "setting by a closure": _config(
        "jax_traceback_filtering",
        "len(config.jax_traceback_filtering or '')",
        "'tracebackhide'",
        "import jax\nconfig = jax.config",
    ),
    "setting by its values": _config(
        "jax_pgle_aggregation_percentile", "jax.config.values['jax_pgle_aggregation_percentile']", "77"
    ),
    "precision of products": _config(
        "jax_default_matmul_precision",
        "len(str(jax.make_jaxpr(lambda a: a @ a)(jax.numpy.ones((2, 2))).eqns[0].params['precision']))",
        "'highest'",
    ),
}
PRIMITIVE = """
import jax, jax.extend, jax.numpy as jnp
from jax.interpreters import ad, batching, mlir
p = jax.extend.core.Primitive("p_of_mine")
p.def_impl(lambda x: x * 1.0)
p.def_abstract_eval(lambda x: x)
mlir.register_lowering(p, mlir.lower_fun(lambda x: x * 1.0, multiple_results=False))
batching.primitive_batchers[p] = lambda xs, ds: (xs[0] * 2.0, ds[0])
ad.primitive_jvps[p] = lambda xs, ts: (p.bind(xs[0]), ts[0] * 2.0)
"""
REGISTERED = """
import dataclasses, functools, jax
class P:
    def __init__(self, a=2.0): self.a = a
class Q(P): pass
state = [2.0]
"""
NODE = "jax.tree_util.register_pytree_node(P, lambda p: ((p.a,), None), lambda _, c: P(*c))"
_REGISTRY = {
    "batching rule": (
        PRIMITIVE,
        "jax.vmap(p.bind)(jnp.ones(1))[0]",
        "batching.primitive_batchers[p] = lambda xs, ds: (xs[0] * 3.0, ds[0])",
    ),
    "derivative": (
        PRIMITIVE,
        "jax.grad(p.bind)(1.0)",
        "ad.primitive_jvps[p] = lambda xs, ts: (p.bind(xs[0]), ts[0] * 3.0)",
    ),
    "derivative by deflinear": (PRIMITIVE, "jax.grad(p.bind)(1.0)", "ad.deflinear2(p, lambda t, _: [t * 3.0])"),
    "batching rule in a closure": (
        f"{PRIMITIVE}def made(p):\n    return lambda: jax.vmap(lambda x: p.bind(x))(jnp.ones(1))[0]\nget = made(p)",
        "get()",
        "batching.defvectorized(p)",
    ),
    "custom_jvp": (
        "import jax\n@jax.custom_jvp\ndef f(x): return x\nf.defjvp(lambda p, t: (p[0], 2.0 * t[0]))",
        "jax.grad(f)(1.0)",
        "f.defjvp(lambda p, t: (p[0], 3.0 * t[0]))",
    ),
    "custom_vjp": (
        "import jax\n@jax.custom_vjp\ndef f(x): return x\nf.defvjp(lambda x: (x, None), lambda _, t: (2.0 * t,))",
        "jax.grad(f)(1.0)",
        "f.defvjp(lambda x: (x, None), lambda _, t: (3.0 * t,))",
    ),
    "custom_vmap": (
        "import jax, jax.numpy as jnp\n@jax.custom_batching.custom_vmap\ndef f(x): return x\n"
        "f.def_vmap(lambda n, b, x: (x * 2.0, True))",
        "jax.vmap(f)(jnp.ones(1))[0]",
        "f.def_vmap(lambda n, b, x: (x * 3.0, True))",
    ),
    "class registered later": (REGISTERED, "(1.0 + (jax.tree.leaves(P())[0] == 2.0))", NODE),
    "class registered later, in a closure": (
        f"{REGISTERED}def made(p):\n    return lambda: 1.0 + len(jax.tree.leaves([p, p, 1.0]))\nget = made(P([1, 2]))",
        "get()",
        NODE,
    ),
    "dataclass registered later": (
        f"{REGISTERED}@dataclasses.dataclass(frozen=True)\nclass D:\n    a: float = 2.0\n    b: float = 3.0",
        "(1.0 + len(jax.tree.leaves(D())))",
        "jax.tree_util.register_dataclass(D)",
    ),
    "class registered as static later": (
        REGISTERED,
        "(1.0 + len(jax.tree.leaves(Q())))",
        "jax.tree_util.register_static(Q)",
    ),
    "subclass of a tuple registered later": (
        f"{REGISTERED}class T(tuple): pass",
        "(1.0 + len(jax.tree.leaves(T((1, 2)))))",
        "jax.tree_util.register_pytree_node(T, lambda t: (tuple(t), None), lambda _, c: T(c))",
    ),
    "is_leaf that reads state": (
        REGISTERED,
        "(1.0 + len(jax.tree.leaves([1, 2, 3], is_leaf=lambda leaf: type(leaf) is list and state[0] > 2.5)))",
        "state[0] = 3.0",
    ),
    "flatten that reads a global": (
        f"{REGISTERED}K = 2.0\njax.tree_util.register_pytree_node(P, lambda p: ((K,), None), lambda _, c: P(*c))",
        "jax.tree.leaves(P())[0]",
        "K = 3.0",
    ),
    "flatten that reads a class": (
        f"{REGISTERED}P.k = 2.0\n@jax.tree_util.register_pytree_node_class\nclass R:\n"
        "    def tree_flatten(self): return (P.k,), None\n    @classmethod\n    def tree_unflatten(cls, a, c): return cls()",
        "sum(jax.tree.leaves([R()]))",
        "P.k = 3.0",
    ),
    "unflatten that reads state": (
        f"{REGISTERED}jax.tree_util.register_pytree_node(P, lambda p: ((p.a,), None), lambda _, c: P(state[0]))",
        "jax.tree.map(lambda a: a, P()).a",
        "state[0] = 3.0",
    ),
    "flatten with keys that reads state": (
        f"{REGISTERED}jax.tree_util.register_pytree_with_keys(P, lambda p: (((('k' * int(state[0])), p.a),), None), "
        "lambda _, c: P(*c))",
        "len(jax.tree_util.tree_flatten_with_path(P())[0][0][0][0])",
        "state[0] = 3.0",
    ),
    "singledispatch": (
        f"{REGISTERED}@functools.singledispatch\ndef f(a): return 2.0",
        "f(P())",
        "f.register(P, lambda a: 3.0)",
    ),
    "singledispatchmethod": (
        f"{REGISTERED}class M:\n    @functools.singledispatchmethod\n    def f(self, a): return 2.0",
        "M().f(1)",
        "M.f.register(int, lambda self, a: 3.0)",
    ),
    "registered number": (
        "import numbers\nclass N: pass",
        "(3.0 if isinstance(N(), numbers.Number) else 2.0)",
        "numbers.Number.register(N)",
    ),
    "registered sequence": (
        "import collections.abc\nclass N: pass",
        "(3.0 if isinstance(N(), collections.abc.Sequence) else 2.0)",
        "collections.abc.Sequence.register(N)",
    ),
    "copyreg": (
        f"import copy, copyreg\n{REGISTERED}",
        "copy.copy(Q(2.0)).a",
        "copyreg.pickle(Q, lambda q: (Q, (3.0,)))",
    ),
}
_STATE = {
    "functools.cache": (
        "import functools\nK = 2.0\n@functools.cache\ndef f(): return K",
        "f()",
        "K = 3.0\nf.cache_clear()",
    ),
    "lru_cache of an object": (
        "import functools\nclass O: k = 2.0\no = O()\n@functools.lru_cache\ndef f(o): return O()",
        "f(o).k",
        "f(o).k = 3.0",
    ),
    "cache_info": ("import functools\nf = functools.cache(abs)", "(1.0 + f.cache_info().currsize)", "f(1), f(2)"),
    "copied context": (
        "import contextvars\nV = contextvars.ContextVar('v', default=2.0)",
        "contextvars.copy_context().get(V, 2.0)",
        "V.set(3.0)",
    ),
    "context in a context": (
        "import contextvars\nV = contextvars.ContextVar('v', default=2.0)\nC = contextvars.copy_context()",
        "C.run(V.get)",
        "C.run(V.set, 3.0)",
    ),
    "dead object": (
        "import weakref\nclass O: pass\no = O()\nR = weakref.ref(o)",
        "(3.0 if R() is None else 2.0)",
        "del o",
    ),
    "weak dictionary": (
        "import weakref\nclass O: pass\no = O()\nD = weakref.WeakValueDictionary(o=o)",
        "(1.0 + len(D))",
        "del o",
    ),
    "proxy": ("import weakref\nclass O: k = 2.0\no = O()\nP = weakref.proxy(o)", "P.k", "o.k = 3.0"),
    "count": ("import itertools\nC = itertools.count(2)", "next(C)", "pass"),
    "cycle": ("import itertools\nC = itertools.cycle([2.0, 3.0])", "next(C)", "pass"),
    "queue": ("import queue\nQ = queue.SimpleQueue()", "(1.0 + Q.qsize())", "Q.put(1)"),
    "value of ctypes": ("import ctypes\nV = ctypes.c_double(2.0)", "V.value", "V.value = 3.0"),
    "UserDict": ("import collections\nD = collections.UserDict(k=2.0)", "D['k']", "D['k'] = 3.0"),
    "event": ("import threading\nE = threading.Event()", "(3.0 if E.is_set() else 2.0)", "E.set()"),
    "asynchronous generator": ("G = (i for i in (2.0, 3.0))", "G.send(None)", "pass"),
    "mock": ("from unittest import mock\nM = mock.Mock(return_value=2.0)", "M()", "M.return_value = 3.0"),
    "io.BytesIO": ("import io\nB = io.BytesIO(b'ab')", "(1.0 + B.tell())", "B.seek(2)"),
    "lock": ("import threading\nL = threading.Lock()", "(3.0 if L.locked() else 2.0)", "L.acquire()"),
}

KINDS: dict[str, dict[str, str]] = {
    kind: {name: source_of(parts) for name, parts in programs.items()}
    for kind, programs in {"package": _PACKAGE, "jax": _JAX, "registry": _REGISTRY, "state": _STATE}.items()
}
