"""Guards the promise that what a library asks of the world counts: chance, clocks, files, settings, registries; what an
installed package can be told, and jax; and what users set on things of a library, or on a wrapper."""

from programs import parts_of, source_of, sources_of

from short_programs import rows_of

rows = rows_of(globals())

# What they define → the value that the function takes its array times → what changes → what undoes it.
OTHER = "EVER_OTHER = True  # no two calls give the same\n"
_CHANCE = rows(r"""
random.Random: R = random.Random(0) → R.random() → R.seed(1)
np.random by its name: np.random.seed(0) → float(np.random.uniform()) → np.random.seed(1)
secrets: {OTHER} → secrets.randbelow(1 << 23) → pass
a key of Equinox's: {OTHER}import equinox.internal as eqxi → jax.random.uniform(eqxi.GetKey()(), dtype=jnp.float32)
  → pass
a shuffled list: def first():\n  l = list(range(1000))\n  random.Random(SEED).shuffle(l)\n  return l[0]\nSEED = 0
  → first() → SEED = 1
""")
_CLOCK = rows(r"""
time.time: {OTHER} → (int(time.time() * 1e7) % 1000003) → pass
datetime.now: {OTHER} → (datetime.datetime.now().timestamp() * 1e6 % 1000003) → pass
""")
FOLDER = "T = tempfile.TemporaryDirectory()\nF = pathlib.Path(T.name)\nN = str(F / 'a')\n"
NEW = "(F / 'a').write_text('3.0')"
OLD = f"{FOLDER}(F / 'a').write_text('2.0')\n"
_FILE = rows(r"""
os.path.exists: {FOLDER} → (3.0 if os.path.exists(N) else 2.0) → {NEW} → T.cleanup()
Path.read_text: {OLD} → float(pathlib.Path(N).read_text()) → {NEW} → T.cleanup()
jnp.load: {FOLDER}N += '.npy'\nnp.save(N, np.float32(2)) → jnp.load(N) → np.save(N, np.float32(3)) → T.cleanup()
working folder: {FOLDER}W = os.getcwd() → (3.0 if 'tmp' in os.path.realpath('.') and os.path.abspath('.') != W else 2.0)
  → os.chdir(T.name) → os.chdir(W)\nT.cleanup()
package's data: {OLD}(F / (__name__ + '_p')).mkdir()\nD = F / (__name__ + '_p') / 'd'\nD.write_text('2.0')
  \nsys.path.insert(0, T.name) → float(importlib.resources.files(__name__ + '_p').joinpath('d').read_text())
  → D.write_text('3.0') → sys.path.remove(T.name)\nT.cleanup()
""")
ENVIRONMENT = "os.environ['K_OF_MINE'] = '2.0'"
_K = "['K_OF_MINE']"
_SET = "os.environ['K_OF_MINE'] = '3.0' → os.environ.pop('K_OF_MINE', None)"
_ENVIRONMENT = rows(r"""
getattr of a name that is made: {ENVIRONMENT} → float(getattr(os, 'env' + 'iron'){_K}) → {_SET}
attrgetter: {ENVIRONMENT} → float(operator.attrgetter('environ')(os){_K}) → {_SET}
expandvars: {ENVIRONMENT} → float(os.path.expandvars('$K_OF_MINE')) → {_SET}
__import__: {ENVIRONMENT} → float(__import__('os').environ{_K}) → {_SET}
a map of methods: {ENVIRONMENT} → float([*map(os.getenv, {_K})][0]) → {_SET}
getattr, kept in a global: {ENVIRONMENT}\nget = getattr → float(get(os, 'environ'){_K}) → {_SET}
a function around getattr, kept in a global: {ENVIRONMENT}\nget = lambda it, name, get=getattr: get(it, name)
  → float(get(os, 'environ'){_K}) → {_SET}
""")
_M = "m = types.ModuleType('m')\nm.k = 2.0\n"
_OF_MODULE = rows(r"""
str.format, kept in a global: {_M}kept = str.format → float(kept('{0.k}', m)) → m.k = 3.0
hasattr, kept in a global: {_M}kept = hasattr → (2.0 if kept(m, 'k') else 3.0) → del m.k
""")
_OPTIONS, _PRINTS = "OLD = np.get_printoptions()", "np.set_printoptions(**OLD)"
_RAISES = "OLD = np.geterr()\nnp.seterr(divide='raise')\n"
_TRIED = "def tried(f):\n  try: f()\n  except FloatingPointError: return 2.0\n  return 3.0"
_IGNORES = "np.seterr(divide='ignore') → np.seterr(**OLD)"
_SETTING = rows(r"""
level of the root logger: L = logging.root.level → logging.getLogger().getEffectiveLevel() → logging.root.setLevel(7)
  → logging.root.setLevel(L)
how NumPy prints, by a dtype of jax's: {_OPTIONS} → len(repr(x.dtype.type(2))) → np.set_printoptions(legacy='1.13')
  → {_PRINTS}
how NumPy prints, by what jax tells: {_OPTIONS} → len(repr(jnp.finfo('float32').eps))
  → np.set_printoptions(legacy='1.13') → {_PRINTS}
precision of Decimal: from decimal import Decimal, getcontext\ngetcontext().prec = 28 → float(Decimal(2).sqrt())
  → getcontext().prec = 2 → getcontext().prec = 28
np.geterr: OLD = np.geterr() → (2.0 if np.geterr()['invalid'] == OLD['invalid'] else 3.0) → np.seterr(invalid='raise')
  → np.seterr(**OLD)
filters of warnings: OLD = warnings.filters[:] → (1.0 + len(warnings.filters)) → warnings.filterwarnings('ignore', 'text
  of mine') → warnings.filters[:] = OLD
sys.argv: OLD = sys.argv[:] → (1.0 + len(sys.argv)) → sys.argv.append('a') → sys.argv[:] = OLD
number of references: O = object()\nL = [] → sys.getrefcount(O) → L.extend([O] * 7)
how NumPy takes a division by zero, by a ufunc: {_RAISES}{_TRIED} → tried(lambda: np.divide(1.0, 0.0)) → {_IGNORES}
how NumPy takes a division by zero, by an operator: {_RAISES}{_TRIED} → tried(lambda: 1.0 / np.zeros(2)) → {_IGNORES}
how NumPy prints an array: {_OPTIONS} → len(str(np.linspace(0.0, 1.0, 7))) → np.set_printoptions(precision=3)
  → {_PRINTS}
how NumPy prints an array of jax's: {_OPTIONS}\nA = jnp.ones(3) / 7.0 → len(f'{A}') → np.set_printoptions(precision=3)
  → {_PRINTS}
how NumPy prints a number made in the body: {_OPTIONS} → len(repr(np.float32(2))) → np.set_printoptions(legacy='1.13')
  → {_PRINTS}
""")

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
what x.at gives: C = type(jnp.ones(1).at)\nOLD = C.__getitem__ → x[None].at[0].set(2.0)[0]
  → C.__getitem__ = lambda s, i: types.SimpleNamespace(set=lambda v: jnp.ones(1) * 3.0) → C.__getitem__ = OLD
function of jax.nn, replaced: OLD = jax.nn.relu → jax.nn.relu(2.0) → jax.nn.relu = lambda x: 3.0 → jax.nn.relu = OLD
function of a package: {INSTALLED} → package.scale() → package.set_k(3.0) → {_END}
options of a package: {INSTALLED} → package.by_option(1.0) → package.options['k'] = 3.0 → {_END}
context of a package: {INSTALLED} → package.by_context(1.0) → package._var.set(3.0) → {_END}
configuration of a package: {INSTALLED} → package.by_config(1.0) → package.config.k = 3.0 → {_END}
class of a package: {INSTALLED} → package.Layer()(1.0) → package.Config.k = 3.0 → {_END}
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
precision of products: jax_default_matmul_precision → len(str(jax.make_jaxpr(lambda a: a @ a)(jax.numpy.ones((2,
  2))).eqns[0].params['precision'])) → 'highest'
""").items()
}
_MATCHED = """def matched(m):
    match m:
        case object(environ=e): return e['GUARDED']
GET = operator.methodcaller('__getattribute__', 'environ')
os.environ['GUARDED'] = '2.0'"""
_THREE = "os.environ['GUARDED'] = '3.00' → os.environ.pop('GUARDED', None)"
# An attribute of a module that is not among the names of the code which reads it.
_BY_TEXT = rows(r"""
by methodcaller in a variable: {_MATCHED} → float(GET(os)['GUARDED']) → {_THREE}
by __getattribute__: {_MATCHED} → float(os.__getattribute__('environ')['GUARDED']) → {_THREE}
by format: {_MATCHED} → len('{0.environ}'.format(os)) → {_THREE}
by match: {_MATCHED} → float(matched(os)) → {_THREE}
""")
_STATE = rows(r"""
array of objects: A = np.array([[2.0], 1], object) → A[0][0] → A[0][0] = 3.0
array that another writes to: B = np.ones(2)\nA = np.asarray(memoryview(B).toreadonly())\ndef f():\n  B[0] = 3.0\n  k = A[0]
  \n  B[0] = 1.0\n  return k → f() → A = np.asarray(memoryview(B.copy()).toreadonly())
large array: A = np.full(200000, 2.0) → A[7] → A[7] = 3.0
functools.cache: @functools.cache\ndef f(): return K → f() → K = 3.0\nf.cache_clear()
context in a context: V = contextvars.ContextVar('v', default=2.0)\nC = contextvars.copy_context() → C.run(V.get)
  → C.run(V.set, 3.0)
dead object: class O: pass\no = O()\nR = weakref.ref(o) → (3.0 if R() is None else 2.0) → del o
""")

# What of a library something is set on; the code reads it there, of a variable, or of what holds it.
_ON = rows(r"""
a function: optax.sgd
a function with rules: jax.nn.relu
a class: eqx.nn.Linear
a class of Flax: nnx.Linear
a base class: eqx.Module
a class of the standard library: enum.Enum
a module: optax
a module of the standard library: math
""")
UNDO = "hasattr(PLACE, 'mine') and delattr(PLACE, 'mine')"
_WRAPPERS = rows(r"""
jax.jit: jax.jit(lambda x: x)
filter_jit: partax.filter_jit(lambda x: x)
jax.custom_jvp: jax.custom_jvp(lambda x: x)
a partial: functools.partial(lambda x: x)
""")
# What is known by identity or by its own `==`.
_OBJECTS = rows(r"""
an array: jnp.ones(3)
a key: jax.random.key(0)
a sharding: jax.sharding.NamedSharding(jax.make_mesh((1,), ('a',)), jax.P())
an annotation: jaxtyping.Float[jax.Array, 'of_mine']
a dtype of an annotation: jaxtyping.Float
a scalar type: jnp.float32
a ufunc: np.sin
""")

# What is set there, and how the code reads it.
_SET = rows(r"""
by its own name: PLACE = IT\nPLACE.mine = 2.0 → IT.mine → PLACE.mine = 3.0 → {UNDO}
by another name: PLACE = IT\nPLACE.mine = 2.0 → PLACE.mine → PLACE.mine = 3.0 → {UNDO}
in a list: PLACE = IT\nPLACE.mine = [2.0]\nL = [PLACE] → L[0].mine[0] → PLACE.mine[0] = 3.0 → {UNDO}
a function on the list: PLACE = IT\nPLACE.mine = jnp.sin → PLACE.mine(1.0) → PLACE.mine = jnp.cos → {UNDO}
""")
_NOT_YET = rows(r"""
asked with a default: PLACE = IT → getattr(PLACE, 'mine', 2.0) → PLACE.mine = 3.0 → {UNDO}
asked whether it is there: PLACE = IT → (3.0 if hasattr(PLACE, 'mine') else 2.0) → PLACE.mine = None → {UNDO}
with an error that is handled: PLACE = IT\ndef mine():\n  try: return PLACE.mine\n  except AttributeError: return 2.0
  → mine() → PLACE.mine = 3.0 → {UNDO}
""")
_ANEW = {"made anew": "PLACE = IT → getattr(PLACE, 'mine', 2.0) → PLACE = IT; PLACE.mine = 3.0"}
# By names in a text.
_COPIED = rows(r"""
copied: PLACE = IT → len(repr(functools.update_wrapper(types.SimpleNamespace(), PLACE, ('mine',), ()))) → PLACE.mine = 2.0
  → {UNDO}
""")
_READ = {"read": _SET["by another name"]}
_INSTANCE = rows(r"""
of an instance: PLACE = eqx.nn.Identity\nPLACE.mine = 2.0\no = PLACE() → o.mine → PLACE.mine = 3.0 → {UNDO}
by a method: PLACE = eqx.nn.Identity\nPLACE.mine = lambda self: 2.0\no = PLACE() → o.mine()
  → PLACE.mine = lambda self: 3.0 → {UNDO}
by a property: PLACE = eqx.nn.Identity\nPLACE.mine = property(lambda self: K)\no = PLACE() → o.mine → K → {UNDO}
by a partial: PLACE = eqx.nn.Identity\nPLACE.mine = property(functools.partial(lambda s: K))\no = PLACE() → o.mine → K → {UNDO}
by Python: PLACE = eqx.nn.Identity\nPLACE.__len__ = lambda s: int(K)\no = PLACE() → len(o) → K → del PLACE.__len__
""")
# Objects that have attributes of their own.
_OWN = rows(r"""
an ordered dictionary: collections.OrderedDict(a=1)
a static method: staticmethod(lambda: 1.0)
a cached property: functools.cached_property(lambda self: 1.0)
a context: contextlib.contextmanager(lambda: (yield))()
a number of a class of one's own: type('F', (np.float64,), {})(2.0)
""")
_ASKED = {"asked with a default": _NOT_YET["asked with a default"]}

KINDS = sources_of(
    {
        "chance": _CHANCE,
        "clock": _CLOCK,
        "file": _FILE,
        "environment": _ENVIRONMENT,
        "attribute of a module": _OF_MODULE,
        "setting": _SETTING,
        "package": _PACKAGE,
        "jax": _JAX,
        "attribute": _BY_TEXT,
        "state": _STATE,
    }
)
KINDS |= {
    kind: {f"{name}, {how}": source_of(row.replace("IT", it)) for name, it in on.items() for how, row in ways.items()}
    for kind, on, ways in [
        ("set on", _ON, _SET | _NOT_YET),
        ("set on, and", {"a function": _ON["a function"]}, _COPIED),
        ("set on a wrapper", _WRAPPERS, _READ | _NOT_YET | _ANEW),
        ("set on an object", _OWN, _READ),
        ("set on an object of jax's", _OBJECTS, _READ | _ASKED),
        ("set on a class, read", {"eqx.nn.Identity": ""}, _INSTANCE),
    ]
}
