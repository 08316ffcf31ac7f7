"""Guards the promise that what code gets out of modules, or by an attribute or an import, counts, whatever it is; rules
and classes that a user registers with jax, Python, lineax and dataclasses; and names in annotations: those in texts, and
those that others have set on a function."""

import sys

from programs import function_of, program_of, sources_of

from short_programs import rows_of

rows = rows_of(globals())

_M = "m = types.ModuleType('m_of_mine')\nsys.modules['m_of_mine'] = m\n"
_UNDO = "sys.modules.pop('m_of_mine', None); sys.modules.pop('m_of_mine.types', None)"
_ACT = f"{_M}m.act = jnp.sin"
_SUBCLASS = "class S(types.ModuleType):\n    k = property(lambda self: K)\n"
_ASKING = "class S(types.ModuleType):\n    def __getattribute__(self, name): return K if name == 'k' else super().__getattribute__(name)\n"
_MISSED = f"{_M}def get(): return m.k\ndef tried():\n    try: return get()\n    except AttributeError: return 2.0\n"
_MATCHED = f"{_M}def matched():\n    match m:\n        case object(k=v): return v\n        case _: return 2.0\n"
_KIND = """class S: pass
def kind(v):
    match v:
        case [*_] | {}: return 3.0
        case _: return 2.0
s = S()"""

_COS = f"m.act = jnp.cos → {_UNDO}"
_SWAPPED = f"{_M}a, b = types.ModuleType('a'), types.ModuleType('b')\na.act, b.act, m.xp = jnp.sin, jnp.cos, a\n"
_SWAP = f"m.xp = b → {_UNDO}"
# A function on the list, in each place of a module; it becomes another one.
FUNCTIONS = rows(r"""
of a global module: {_ACT} → lambda x: m.act(x) → {_COS}
of a module in a list: {_ACT}\nL = [m] → lambda x: L[0].act(x) → {_COS}
of a module in a class: {_ACT}\nclass C: backend = m → lambda x: C.backend.act(x) → {_COS}
of a module in a partial: {_ACT}\ndef apply(m, x): return m.act(x) → lambda x: functools.partial(apply, m)(x) → {_COS}
imported in the body: {_ACT}\ndef f(x):\n  from m_of_mine import act\n  return act(x) → lambda x: f(x) → {_COS}
""")
SUBMODULES = rows(r"""
swapped: {_SWAPPED}L = [m] → lambda x: L[0].xp.act(x) → {_SWAP}
swapped, of a global: {_SWAPPED} → lambda x: m.xp.act(x) → {_SWAP}
swapped, in a default: {_SWAPPED}def f(x, m=m): return m.xp.act(x) → lambda x: f(x) → {_SWAP}
swapped, imported: {_SWAPPED}def f(x):\n  from m_of_mine import xp\n  return xp.act(x) → lambda x: f(x) → {_SWAP}
""")
IMPORTS = rows(r"""
sys.modules: {_M}m.k = 2.0\ndef get():\n  import m_of_mine\n  return m_of_mine.k → get()
  → n = types.ModuleType('n'); n.k = 3.0; sys.modules['m_of_mine'] = n → {_UNDO}
a relative import: {_M}t = types.ModuleType('m_of_mine.types')\nsys.modules['m_of_mine.types'], t.k, m.types = t, 2.0, t
  \nm.__path__ = []\nexec('''def get():\n  from .types import k\n  return k''', vars(m) | {'__package__': 'm_of_mine'},
  vars(m)) → m.get() → t.k = 3.0 → {_UNDO}
a relative import of the package: {_M}m.k, m.__path__ = 2.0, []\nexec('''def get():\n  from . import k\n  return k''',
  vars(m) | {'__package__': 'm_of_mine'}, vars(m)) → m.get() → m.k = 3.0 → {_UNDO}
""")
CLASSES = rows(r"""
a property over the dictionary: {_SUBCLASS}m = S('m')\nvars(m)['k'] = 5.0 → m.k → K
a property over the dictionary, in a list: {_SUBCLASS}m = S('m')\nvars(m)['k'] = 5.0\nL = [m] → L[0].k → K
__getattribute__: {_ASKING}m = S('m')\nvars(m)['k'] = 5.0 → m.k → K
__getattr__ that is added: {_M} → getattr(m, 'k', 2.0) → m.__getattr__ = lambda name: 3.0 → {_UNDO}
""")
# From 3.14 on plain Python does not see it either, once it has read the attribute.
if sys.version_info < (3, 14):
    CLASSES |= rows(r"""
a module's class is assigned: {_M}m.k = 2.0\n{_SUBCLASS}K = 3.0 → m.k → m.__class__ = S → {_UNDO}
a module's class is assigned, in a list: {_M}m.k = 2.0\nL = [m]\n{_SUBCLASS}K = 3.0 → L[0].k → m.__class__ = S → {_UNDO}
""")
_OF_LIBRARY = _MATCHED.replace("match m:", "match optax.sgd:")
ABSENT = rows(r"""
in a pattern: {_MATCHED} → matched() → m.k = 3.0 → {_UNDO}
in a pattern, of a library: {_OF_LIBRARY} → matched() → optax.sgd.k = 3.0
  → hasattr(optax.sgd, 'k') and delattr(optax.sgd, 'k'); {_UNDO}
in a helper, handled by who calls it: {_MISSED} → tried() → m.k = 3.0 → {_UNDO}
in a helper, suppressed: {_M}def get(): return m.k\ndef tried():\n  with warnings.catch_warnings():\n    pass
  \n  try: return get()\n  except Exception: return 2.0\n → tried() → m.k = 3.0 → {_UNDO}
in a property that falls to __getattr__: {_M}@dataclasses.dataclass(frozen=True)\nclass C:\n  m: typing.Any
  \n  @property\n  def r(self): return self.m.k\n  def __getattr__(self, name): return 2.0\nc = C(m) → c.r → m.k = 3.0
  → {_UNDO}
""")
_FORMAT = f"{_M}m.k = 2.0\nFMT = '{{0.k}}'"
FORMATS = rows(r"""
of one text or another: {_FORMAT} → float((FMT or '{}').format(m)) → m.k = 3.0 → {_UNDO}
of a module on the list: optax.mine = 2.0 → float('{0.mine}'.format(optax)) → optax.mine = 3.0
  → hasattr(optax, 'mine') and delattr(optax, 'mine')
""")
EXECUTED = rows(r"""
builtins that are a view: B = {'k': 2.0}\ndef made():\n  d = {'__builtins__': types.MappingProxyType(B)}
  \n  exec('def f(x): return x * k', d)\n  return d['f'] → made() → B['k'] = 3.0
""")
BY_REGISTRATION = rows(r"""
a sequence: {_KIND} → kind(s) → collections.abc.Sequence.register(S)\nS.__len__ = lambda s: 0
  \nS.__getitem__ = lambda s, i: 0
a mapping: {_KIND} → kind(s) → collections.abc.Mapping.register(S)
""")

ORDERS = {
    name: f"{program_of('', 'f', '')}def run(text): exec(f'def f(x): return x * ({body})'.replace('SET', text), globals())\n"
    "run('{0, 8}')\ndef change(): run('{8, 0}')\n"
    for name, body in rows(r"""
in a loop: sum(i * k for i, k in enumerate(n for n in SET))
in a comprehension: [1.0 + k for k in SET][0]
of a set in a tuple: (1.0 + [*(frozenset(SET), 1)[0]][0])
""").items()
}

# Another in the place of one that is on the list.
_FAKE = "OLD, FAKE = sys.modules['math'], types.ModuleType('math')\nFAKE.pi = 3.0\n"
_NAMESAKE = """
F = tempfile.TemporaryDirectory()
OLD = {name: it for name, it in sys.modules.items() if name.partition('.')[0] == 'optimistix'}
for name in OLD: del sys.modules[name]
pathlib.Path(F.name, 'optimistix.py').write_text('k = 2.0\\ndef get(): return k')
sys.path.insert(0, F.name)
import optimistix
"""
_OF_NAMESAKE = "sys.path.remove(F.name); sys.modules.pop('optimistix'); sys.modules.update(OLD); F.cleanup()"
_LISTED = rows(r"""
another module of its name: {_FAKE}def get():\n  import math\n  return math.pi → get() → sys.modules['math'] = FAKE
  → sys.modules['math'] = OLD
another module of its name, of which a name is imported: {_FAKE}def get():\n  from math import pi\n  return pi → get()
  → sys.modules['math'] = FAKE → sys.modules['math'] = OLD
another module below it: import jax.nn\nOLD, FAKE = jax.nn, types.ModuleType('jax.nn')\nFAKE.relu = lambda x: 3.0
  \ndef get():\n  from jax import nn\n  return nn.relu(2.0) → get() → jax.nn = FAKE → jax.nn = OLD
a module of the user's that is called so: {_NAMESAKE} → optimistix.get() → optimistix.k = 3.0 → {_OF_NAMESAKE}
a function of the user's in its scope: import optax.tree_utils
  \nget = types.FunctionType((lambda: MINE).__code__, vars(optax.tree_utils))\noptax.tree_utils.MINE = 2.0 → get()
  → optax.tree_utils.MINE = 3.0 → vars(optax.tree_utils).pop('MINE', None)
""")

REGISTERED = """
import dataclasses, functools, jax
class P:
    def __init__(self, a=2.0): self.a = a
class Q(P): pass
state = [2.0]
"""
CONVERTED = """
def converted(k): return k * K
class M(eqx.Module):
    k: float = eqx.field(converter=converted)
class Under(M): pass
"""
OPERATOR = """
import lineax
class Own(lineax.AbstractLinearOperator):
    v: jax.Array
    def mv(self, vector): return self.v * vector
    def as_matrix(self): return jnp.diag(self.v)
    def transpose(self): return self
    def in_structure(self): return jax.eval_shape(lambda: self.v)
    def out_structure(self): return jax.eval_shape(lambda: self.v)
lineax.is_symmetric.register(Own)(lambda it: True)
lineax.diagonal.register(Own)(lambda it: it.v * K)
"""
NODE = "jax.tree_util.register_pytree_node(P, lambda p: ((p.a,), None), lambda _, c: P(*c))"
CLASS = """@jax.tree_util.register_pytree_node_class
class R:
    def __init__(self, a=2.0): self.a = a
    def tree_flatten(self): return (self.a * K / 2.0,), None
    @classmethod
    def tree_unflatten(cls, _, c): return cls(*c)
"""
_REGISTRY = rows(r"""
custom_jvp: @jax.custom_jvp\ndef f(x): return x\nf.defjvp(lambda p, t: (p[0], 2.0 * t[0])) → jax.grad(f)(1.0)
  → f.defjvp(lambda p, t: (p[0], 3.0 * t[0]))
class registered later: {REGISTERED} → (1.0 + (jax.tree.leaves(P())[0] == 2.0)) → {NODE}
dataclass registered later: {REGISTERED}@dataclasses.dataclass(frozen=True)\nclass D:\n  a: float = 2.0
  \n  b: float = 3.0 → (1.0 + len(jax.tree.leaves(D()))) → jax.tree_util.register_dataclass(D)
class registered as static later: {REGISTERED} → (1.0 + len(jax.tree.leaves(Q()))) → jax.tree_util.register_static(Q)
is_leaf that reads state: {REGISTERED} → (1.0 + len(jax.tree.leaves([1, 2, 3], is_leaf=lambda leaf: type(leaf) is list
  and state[0] > 2.5))) → state[0] = 3.0
flatten that reads a global: {REGISTERED}jax.tree_util.register_pytree_node(P, lambda p: ((K,), None), lambda _, c:
  P(*c)) → jax.tree.leaves(P())[0] → K
method that flattens, which reads a global: {REGISTERED}{CLASS} → jax.tree.leaves(R())[0] → K
global in a format of another place: {REGISTERED}TEXT = '{0.__globals__[K]}'\ndef h(): return 1 → float(TEXT.format(h))
  → K
unflatten that reads state: {REGISTERED}jax.tree_util.register_pytree_node(P, lambda p: ((p.a,), None), lambda _, c:
  P(state[0])) → jax.tree.map(lambda a: a, P()).a → state[0] = 3.0
flatten with keys that reads state: {REGISTERED}jax.tree_util.register_pytree_with_keys(P, lambda p: (((('k' *
  int(state[0])), p.a),), None), lambda _, c: P(*c)) → len(jax.tree_util.tree_flatten_with_path(P())[0][0][0][0])
  → state[0] = 3.0
singledispatch: {REGISTERED}@functools.singledispatch\ndef f(a): return 2.0 → f(P()) → f.register(P, lambda a: 3.0)
registered number: class N: pass → (3.0 if isinstance(N(), numbers.Number) else 2.0) → numbers.Number.register(N)
converter of a field: {CONVERTED} → M(1.0).k → K
converter of an inherited field: {CONVERTED} → Under(1.0).k → K
converter of a field, replaced: {CONVERTED} → M(1.0).k → M.__dataclass_fields__['k'].metadata = {'converter': lambda k:
  3.0}
rule of lineax for an operator: {OPERATOR} → lineax.diagonal(Own(jnp.ones(1)))[0] → K
copyreg: {REGISTERED} → copy.copy(Q(2.0)).a → copyreg.pickle(Q, lambda q: (Q, (3.0,)))
""")

CHECK = """
from beartype import beartype
from beartype.door import is_bearable
from jaxtyping import Float, jaxtyped
T, CV, W = float, list, Float[jax.Array, '2']
def passes(check):
    try: check()
    except Exception: return 3.0
    return 2.0
def inner(v: float): return v
def of_array(v: Float[jax.Array, '2']): return v
"""
FIELDS = "        a: 'CV[int]' = 1.0\n        b: float = 2.0\n    return len(fields(D))\nfields = dataclasses.fields"
# A class or function that is made in the body, by each decorator that reads annotations.
_TEXTS = rows(r"""
text for beartype: {CHECK}def get():\n  @beartype\n  def f(v: 'T'): return v\n  return passes(lambda: f(2.0)) → get()
  → T = int
text for jaxtyped: {CHECK}def get():\n  @jaxtyped(typechecker=beartype)\n  def f(v: 'W'): return v
  \n  return passes(lambda: f(jnp.ones(2))) → get() → W = Float[jax.Array, '3']
text inside of a hint: {CHECK}def inside(v: list['T']): return v\nf = beartype(inside) → passes(lambda: f([2.0]))
  → T = int\nf = beartype(inside)
text inside of a hint that has a name: {CHECK}N = tuple[dict[str, 'T'], ...]\ndef inside(v: N): return v
  \nf = jaxtyped(typechecker=beartype)(inside) → passes(lambda: f(({'a': 2.0},))) → T = int
  \nf = jaxtyped(typechecker=beartype)(inside)
annotation that is another: {CHECK} → (2.0 if isinstance(jnp.ones(2), W) else 3.0) → W.dims = Float[jax.Array, '3'].dims
text that is asked: {CHECK} → (2.0 if is_bearable(2.0, 'T') else 3.0) → T = int
function of another place, for beartype: {CHECK} → passes(lambda: beartype(inner)(2.0)) → inner.__annotations__['v'] =
  int
maker that has another name: {CHECK}make_checked = [functools.partial(jaxtyped, typechecker=beartype)]
  → passes(lambda: make_checked[0](of_array)(jnp.ones(2))) → of_array.__annotations__['v'] = Float[jax.Array, '3']
text in a dataclass: {CHECK}def get():\n    @dataclasses.dataclass\n    class D:\n{FIELDS} → get() → CV = typing.ClassVar
text in a module of Equinox: {CHECK}def get():\n    class D(eqx.Module):\n{FIELDS} → get() → CV = typing.ClassVar
""")
_TRIES = "def get():\n    try: A()\n    except TypeError: return 2.0\n    return 3.0"
_MISSING = rows(r"""
what an abstract class has not: class A(eqx.Module):\n    k: eqx.AbstractClassVar[int]\n{_TRIES} → get()
  → type.__setattr__(A, '__abstractclassvars__', frozenset())
methods that an abstract class has not: class A(abc.ABC):\n    @abc.abstractmethod\n    def k(self): ...\n{_TRIES} → get()
  → A.__abstractmethods__ = frozenset()
""")

KINDS = {
    "the order of a set in code": ORDERS,
    **sources_of(
        {"a function of a module": FUNCTIONS, "a module of a module": SUBMODULES, "executed": EXECUTED}, function_of
    ),
    **sources_of(
        {
            "in the place of a listed module": _LISTED,
            "an import in the body": IMPORTS,
            "the class of a module": CLASSES,
            "an attribute that is not there": ABSENT,
            "a format": FORMATS,
            "matched by registration": BY_REGISTRATION,
            "registry": _REGISTRY,
            "annotation": _TEXTS,
            "missing": _MISSING,
        }
    ),
}
