"""Guards the promise that what code gets out of modules, or by an attribute or an import, counts, whatever it is."""

from __future__ import annotations

import sys

from programs import parts_of, program_of, sources_of

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
of a module in a dictionary: {_ACT}\nD = {'m': m} → lambda x: D['m'].act(x) → {_COS}
of a module in a NamedTuple: {_ACT}\nP = collections.namedtuple('P', 'm')(m) → lambda x: P.m.act(x) → {_COS}
of a module in a class: {_ACT}\nclass C: backend = m → lambda x: C.backend.act(x) → {_COS}
of a module below another: {_ACT}\ntop = types.ModuleType('top')\ntop.m = m\nL = [top] → lambda x: L[0].m.act(x) → {_COS}
of a module in a partial: {_ACT}\ndef apply(m, x): return m.act(x) → lambda x: functools.partial(apply, m)(x) → {_COS}
imported in the body: {_ACT}\ndef f(x):\n  from m_of_mine import act\n  return act(x) → lambda x: f(x) → {_COS}
of a module imported in the body: {_ACT}\ndef f(x):\n  import m_of_mine\n  return m_of_mine.act(x) → lambda x: f(x) → {_COS}
""")
SUBMODULES = rows(r"""
swapped: {_SWAPPED}L = [m] → lambda x: L[0].xp.act(x) → {_SWAP}
swapped, of a global: {_SWAPPED} → lambda x: m.xp.act(x) → {_SWAP}
swapped, in a default: {_SWAPPED}def f(x, m=m): return m.xp.act(x) → lambda x: f(x) → {_SWAP}
swapped, imported: {_SWAPPED}def f(x):\n  from m_of_mine import xp\n  return xp.act(x) → lambda x: f(x) → {_SWAP}
swapped, one without the attribute: {_SWAPPED}a.k, b.act = 2.0, jnp.cos\nL = [m] → lambda x: L[0].xp.act(x) → {_SWAP}
""")
IMPORTS = rows(r"""
sys.modules: {_M}m.k = 2.0\ndef get():\n  import m_of_mine\n  return m_of_mine.k → get()
  → n = types.ModuleType('n'); n.k = 3.0; sys.modules['m_of_mine'] = n → {_UNDO}
an import hook: {_M}m.k = 2.0\nreal = builtins.__import__
  \ndef hook(name, *more): return O if name == 'm_of_mine' else real(name, *more)
  \ndef get():\n  from m_of_mine import k\n  return k → get() → O.k = 3.0; builtins.__import__ = hook
  → builtins.__import__ = real; {_UNDO}
""") | {
    "a relative import": (
        f"{_M}t = types.ModuleType('m_of_mine.types')\nsys.modules['m_of_mine.types'], t.k, m.types = t, 2.0, t\n"
        "m.__path__ = []\n"
        "exec('def get():\\n    from .types import k\\n    return k', vars(m) | {'__package__': 'm_of_mine'}, vars(m))"
        f" → m.get() → t.k = 3.0 → {_UNDO}"
    ),
    "a relative import of the package": (
        f"{_M}m.k, m.__path__ = 2.0, []\n"
        "exec('def get():\\n    from . import k\\n    return k', vars(m) | {'__package__': 'm_of_mine'}, vars(m))"
        f" → m.get() → m.k = 3.0 → {_UNDO}"
    ),
}
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
of one by a condition: {_FORMAT} → float((FMT if FMT else '{}').format(m)) → m.k = 3.0 → {_UNDO}
of a module on the list: optax.mine = 2.0 → float('{0.mine}'.format(optax)) → optax.mine = 3.0
  → hasattr(optax, 'mine') and delattr(optax, 'mine')
of the last of several: {_FORMAT} → float((None or FMT or '{}').format(m)) → m.k = 3.0 → {_UNDO}
""")
EXECUTED = rows(r"""
globals that make up values: class G(dict):\n  def __missing__(self, name):\n    if name == 'k': return K
  \n    raise KeyError(name)\ndef made():\n  d = G(__builtins__={})\n  exec('def f(x): return x * k', d)
  \n  return d['f'] → made() → K
globals that are asked: class G(dict):
  \n  def __getitem__(self, name): return K if name == 'k' else dict.__getitem__(self, name)
  \ndef made():\n  d = G(k=5.0)\n  exec('def f(x): return x * k', d)\n  return d['f'] → made() → K
builtins that are a view: B = {'k': 2.0}\ndef made():\n  d = {'__builtins__': types.MappingProxyType(B)}
  \n  exec('def f(x): return x * k', d)\n  return d['f'] → made() → B['k'] = 3.0
""")
REGISTERED = rows(r"""
a sequence: {_KIND} → kind(s) → collections.abc.Sequence.register(S)\nS.__len__ = lambda s: 0
  \nS.__getitem__ = lambda s, i: 0
a mapping: {_KIND} → kind(s) → collections.abc.Mapping.register(S)
with a metaclass of its own: class Meta(abc.ABCMeta): pass\nclass B(metaclass=Meta): pass\nclass S: pass\ns = S()
  → (3.0 if isinstance(s, B) else 2.0) → B.register(S)
""")

ORDERS = {
    name: f"{program_of('', 'f', '')}def run(text): exec(f'def f(x): return x * ({body})'.replace('SET', text), globals())\n"
    "run('{0, 8}')\ndef change(): run('{8, 0}')\n"
    for name, body in rows(r"""
in a loop: sum(i * k for i, k in enumerate(n for n in SET))
in a comprehension: [1.0 + k for k in SET][0]
of a set in a tuple: (1.0 + [*(frozenset(SET), 1)[0]][0])
in a list that is made of it: (1.0 + list(SET)[0])
in a loop of an inner function: (lambda: [1.0 + k for k in SET][0])()
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

KINDS: dict[str, dict[str, str]] = {
    "the order of a set in code": ORDERS,
    **{
        kind: {name: program_of(*parts_of(row)) for name, row in programs.items()}
        for kind, programs in {
            "a function of a module": FUNCTIONS,
            "a module of a module": SUBMODULES,
            "executed": EXECUTED,
        }.items()
    },
    **sources_of(
        {
            "in the place of a listed module": _LISTED,
            "an import in the body": IMPORTS,
            "the class of a module": CLASSES,
            "an attribute that is not there": ABSENT,
            "a format": FORMATS,
            "matched by registration": REGISTERED,
        }
    ),
}
