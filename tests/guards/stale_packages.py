"""Guards the promise that what an installed package can be told counts: its settings, rules and registries, and jax's."""

from __future__ import annotations

from programs import parts_of, sources_of

from short_programs import rows_of

rows = rows_of(globals())

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
_PACKAGE = rows(r"""
matplotlib: OLD = matplotlib.rcParams['lines.linewidth'] → matplotlib.rcParams['lines.linewidth']
  → matplotlib.rcParams['lines.linewidth'] = 7.0 → matplotlib.rcParams['lines.linewidth'] = OLD
jaxtyping:  → (3.0 if jaxtyping.config.jaxtyping_disable else 2.0) → jaxtyping.config.update('jaxtyping_disable', True)
  → jaxtyping.config.update('jaxtyping_disable', False)
chex: def get():\n  try: chex.assert_equal(1, 2)\n  except AssertionError: return 2.0\n  return 3.0 → get()
  → chex.disable_asserts() → chex.enable_asserts()
flax: class M(nn.Module):\n  def __call__(self): return 2.0\nC = nn.intercept_methods(lambda next, args, kwargs,
  context: 3.0) → M().apply({}) → C.__enter__() → C.__exit__(None, None, None)
interceptor of a layer of flax: C = nn.intercept_methods(lambda next, args, kwargs, context: 3.0 * next(*args,
  **kwargs)) → nn.Dense(1, kernel_init=nn.initializers.ones).init_with_output(jax.random.key(0), jnp.ones((1,)))[0][0]
  → C.__enter__() → C.__exit__(None, None, None)
what flax's layers make: OLD = flax.config.flax_return_frozendict
  → (3.0 if isinstance(nn.Dense(1).init(jax.random.key(0), jnp.ones((1,))), flax.core.FrozenDict) else 2.0)
  → flax.config.update('flax_return_frozendict', not OLD) → flax.config.update('flax_return_frozendict', OLD)
names of axes of flax:  → len(nn.logical_to_mesh_axes(('a',))[0] or '12') → nn.set_logical_axis_rules((('a', 'xyz'),))
  → nn.set_logical_axis_rules(())
sharding of nnx: OLD = nnx.using_eager_sharding() → (3.0 if nnx.using_eager_sharding() else 2.0)
  → nnx.use_eager_sharding(not OLD) → nnx.use_eager_sharding(OLD)
graphs of nnx:  → (2.0 if nnx.set_graph_mode.current_value() else 3.0) → flax.config.update('nnx_graph_mode', False)
  → flax.config.update('nnx_graph_mode', True)
checker of jaxtyping: import beartype\n@jaxtyping.jaxtyped(typechecker=beartype.beartype)
  \ndef checked(x: jaxtyping.Float[jax.Array, '3']): return 3.0\ndef get():\n  try: return checked(jnp.ones(2))
  \n  except jaxtyping.TypeCheckError: return 2.0 → get() → jaxtyping.config.update('jaxtyping_disable', True)
  → jaxtyping.config.update('jaxtyping_disable', False)
axes that jaxtyping has bound: SHAPE = jaxtyping.Float[jax.Array, 'n']\nC = jaxtyping.jaxtyped('context')\ndef bind():
  \n  C.__enter__()\n  assert isinstance(jnp.ones(3), SHAPE) → (2.0 if isinstance(jnp.ones(4), SHAPE) else 3.0) → bind()
  → C.__exit__(None, None, None)
sizes that jaxtyping has bound: SHAPE = jaxtyping.Float[jax.Array, 'n']\nC = jaxtyping.jaxtyped('context')
  \ndef bind(n):\n  C.__enter__()\n  assert isinstance(jnp.ones(n), SHAPE)\nbind(4) → (2.0 if isinstance(jnp.ones(4),
  SHAPE) else 3.0) → C.__exit__(None, None, None)\nbind(5) → C.__exit__(None, None, None)
names of the variables of nnx: class A(nnx.Variable): pass\nclass B(nnx.Variable): pass
  \nnnx.register_variable_name('mine', A, overwrite=True) → (2.0 if nnx.variable_type_from_name('mine') is A else 3.0)
  → nnx.register_variable_name('mine', B, overwrite=True) → flax.nnx.variablelib.VariableTypeCache.pop('mine')
what is data for nnx: class A: pass → (2.0 if nnx.is_data(A()) else 3.0) → nnx.register_data_type(A)
  → flax.nnx.pytreelib.DATA_REGISTRY.discard(A)
rules for tags of lineax: import lineax\nTAG = object()\nRULES = lineax.transpose_tags_rules
  → (2.0 if TAG in lineax.MatrixLinearOperator(jnp.eye(2), TAG).T.tags else 3.0) → RULES.append(lambda tags: TAG if TAG
  in tags else None) → RULES.pop()
configuration of flax: OLD = flax.config.flax_return_frozendict → (3.0 if flax.config.flax_return_frozendict else 2.0)
  → flax.config.update('flax_return_frozendict', not OLD) → flax.config.update('flax_return_frozendict', OLD)
function of jax.nn, replaced: OLD = jax.nn.relu → jax.nn.relu(2.0) → jax.nn.relu = lambda x: 3.0 → jax.nn.relu = OLD
function of a package: {INSTALLED} → package.scale() → package.set_k(3.0) → {_END}
attribute of a package: {INSTALLED} → package._k → package._k = 3.0 → {_END}
options of a package: {INSTALLED} → package.by_option(1.0) → package.options['k'] = 3.0 → {_END}
context of a package: {INSTALLED} → package.by_context(1.0) → package._var.set(3.0) → {_END}
configuration of a package: {INSTALLED} → package.by_config(1.0) → package.config.k = 3.0 → {_END}
class of a package: {INSTALLED} → package.Layer()(1.0) → package.Config.k = 3.0 → {_END}
function of a package, replaced: {INSTALLED} → package.scale() → package.scale = lambda: 3.0 → {_END}
""")


def _config(name: str, value: str, new: str, setup: str = "") -> str:
    changes = f"jax.config.update({name!r}, {new}) → jax.config.update({name!r}, OLD)"
    return f"{setup}\nOLD = jax.config._read({name!r}) → {value} → {changes}"


_JAX = {
    name: _config(*parts_of(row))
    for name, row in rows(r"""
kind of keys: jax_default_prng_impl → jax.random.key_data(jax.random.key(0)).size → 'rbg'
partitionable keys: jax_threefry_partitionable → jax.random.uniform(jax.random.key(0), (3,))[1] → not OLD
double precision: jax_enable_x64 → jax.numpy.zeros(1, float).dtype.itemsize → True
promotion of dtypes: jax_numpy_dtype_promotion → get() → 'strict'
  → def get():\n  try: jnp.float32(1) + jnp.int32(1)\n  except Exception: return 3.0\n  return 2.0
setting that is read: jax_log_compiles → (3.0 if jax.config.jax_log_compiles else 2.0) → not OLD
setting by a closure: jax_traceback_filtering → len(config.jax_traceback_filtering or '') → 'tracebackhide'
  → config = jax.config
precision of products: jax_default_matmul_precision → len(str(jax.make_jaxpr(lambda a: a @ a)(jax.numpy.ones((2,
  2))).eqns[0].params['precision'])) → 'highest'
""").items()
}
# An attribute of a module that is not among the names of the code which reads it.
_READ_BY_TEXT = rows(r"""
methodcaller: operator.methodcaller('__getattribute__', 'environ')(os)['GUARDED']
methodcaller in a variable: GET(os)['GUARDED']
__getattribute__: os.__getattribute__('environ')['GUARDED']
__getattribute__ of its class: type(os).__getattribute__(os, 'environ')['GUARDED']
__getattribute__ of object: object.__getattribute__(os, 'environ')['GUARDED']
__getattribute__ in a variable: (lambda m: m.__getattribute__('environ'))(os)['GUARDED']
__getstate__: os.__getstate__()['environ']['GUARDED']
format: len('{0.environ}'.format(os))
format by getattr: len(getattr('{0.environ}', 'format')(os))
format by methodcaller: len(FORMAT('{0.environ}'))
match: matched(os)
""")
_MATCHED = """def matched(m):
    match m:
        case object(environ=e): return e['GUARDED']
GET = operator.methodcaller('__getattribute__', 'environ')
FORMAT = operator.methodcaller('format', os)
os.environ['GUARDED'] = '2.0'"""
_BY_TEXT = {
    f"by {name}": f"{_MATCHED} → float({read}) → os.environ['GUARDED'] = '3.00' → os.environ.pop('GUARDED', None)"
    for name, read in _READ_BY_TEXT.items()
}
_STATE = rows(r"""
functools.cache: @functools.cache\ndef f(): return K → f() → K = 3.0\nf.cache_clear()
lru_cache of an object: class O: k = 2.0\no = O()\n@functools.lru_cache\ndef f(o): return O() → f(o).k → f(o).k = 3.0
context in a context: V = contextvars.ContextVar('v', default=2.0)\nC = contextvars.copy_context() → C.run(V.get)
  → C.run(V.set, 3.0)
dead object: class O: pass\no = O()\nR = weakref.ref(o) → (3.0 if R() is None else 2.0) → del o
proxy: class O: k = 2.0\no = O()\nP = weakref.proxy(o) → P.k → o
count: C = itertools.count(2) → next(C) → pass
queue: Q = queue.SimpleQueue() → (1.0 + Q.qsize()) → Q.put(1)
value of ctypes: V = ctypes.c_double(2.0) → V.value → V.value = 3.0
UserDict: D = collections.UserDict(k=2.0) → D['k'] → D['k'] = 3.0
mock: from unittest import mock\nM = mock.Mock(return_value=2.0) → M() → M.return_value = 3.0
""")

KINDS = sources_of({"package": _PACKAGE, "jax": _JAX, "attribute": _BY_TEXT, "state": _STATE})
